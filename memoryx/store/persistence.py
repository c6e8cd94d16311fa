"""Save and restore the store of one weight server, in checkpoint files that all servers write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch

from memoryx.sparsity.masks import check_density, present_masks
from memoryx.store.snapshot import CopyRoom, Snapshot
from memoryx.store.store import WeightStore, ignore_change
from waferstream.checkpoint import CLUSTER_STATES, parameter_of
from waferstream.checkpoint.packed import PackedSpec
from waferstream.checkpoint.reader import Reader
from waferstream.core.program.program import TensorSpec
from waferstream.host.disk import LOCAL_DISK, Disk


class Persistence:
    """Saves and restores the store of one server; all servers write the same file."""

    def __init__(self, store: WeightStore, server: str, disk: Disk = LOCAL_DISK) -> None:
        self._store = store
        self._disk = disk
        self._server = server
        self._snapshot: Snapshot | None = None
        self._room = CopyRoom(store.memory.copy_limit_bytes)
        self._postponed: list[Callable[[], None]] = []

    def layout(self, states: Collection[str]) -> list[TensorSpec]:
        """Return key, shape and dtype of every tensor that is written of some of CLUSTER_STATES.

        Packed tensors are written as their values, with the masks that say where these belong.
        """
        return [spec for spec, _, _ in self._contents(states)]

    def save(self, path: Path, offsets: Mapping[str, int], is_background: bool) -> None:
        """Begin to write the tensors of these keys, with the values that they have now."""
        self.finish_saving()
        tensors: dict[str, dict[str, np.ndarray]] = {}
        for spec, parameter, values in self._contents(CLUSTER_STATES):
            tensors.setdefault(parameter, {})[spec.name] = values.numpy()
        self._snapshot = Snapshot(
            self._server,
            path,
            tensors,
            offsets,
            is_background,
            self._disk,
            self._store.memory,
            self._room,
            copies_ahead=is_background and not self._store.memory.is_bounded,
        )
        self._store.before_change = self._snapshot.protect
        self._snapshot.start()

    def finish_saving(self) -> None:
        """Wait until everything is written that ``save`` has begun."""
        if self._snapshot is not None:
            self._snapshot.wait()
            self._store.before_change = ignore_change
            self._snapshot = None

    def restore(self, path: Path, state: str, strict: bool) -> None:
        """Read the tensors of one of CLUSTER_STATES in place.

        Without ``strict``, tensors that the file lacks keep their values. Optimizer state and masks
        are read later by ``catch_up`` if the store has no optimizer yet.

        Raises:
            CheckpointError: The file is damaged or does not match.
        """
        if state != "model" and not self._store.has_optimizer:
            self._postponed.append(partial(self.restore, path, state, strict))
            return
        self.finish_saving()
        store, prefix = self._store, CLUSTER_STATES[state]
        own = self._whole_specs(state)
        with self._disk.local(path) as local:
            reader = Reader(local)
            found = set(reader.names(prefix))
            present: Collection[str] = own if strict else own.keys() & found
            if state == "sparsity":
                present = present_masks(store.masks, store.masters, found, str(path), strict)
            reader.check(own[name] for name in present)
            self._read(reader, state, present)
        if state == "sparsity":
            check_density(store.masks, present, str(path))
            store.note_masks(present)

    def _read(self, reader: Reader, state: str, names: Collection[str]) -> None:
        """Read tensors of a state: whole ones in place, those that are packed one by one."""
        store, prefix, held = self._store, CLUSTER_STATES[state], self._store.held(state)
        packed = [
            name
            for name in names
            if state != "sparsity" and parameter_of(name, state) in store.packings
        ]
        in_place = {f"{prefix}.{name}": held[name] for name in names if name not in packed}
        reader.read_into(
            {key: tensor.numpy() for key, tensor in in_place.items()},
            before_each=lambda key: store.memory.use((in_place[key],)),
        )
        for name in packed:
            store.fill({name: torch.from_numpy(reader[f"{prefix}.{name}"])}, state)
        if state != "sparsity":
            store.note_filled({parameter_of(name, state) for name in names})

    def catch_up(self) -> None:
        """Read what was requested before there was an optimizer; make the masks that are missing.

        Raises:
            CheckpointError: The file is damaged or does not match.
        """
        postponed, self._postponed = self._postponed, []
        for restore in postponed:
            restore()
        self._store.make_masks()

    def _contents(self, states: Collection[str]) -> Iterator[tuple[TensorSpec, str, torch.Tensor]]:
        """Yield place in a file, parameter and values of each part of some states."""
        store = self._store
        needs_masks = bool(store.packings) and not {"model", "optimizer"}.isdisjoint(states)
        for state, prefix in CLUSTER_STATES.items():
            if state not in states and not (state == "sparsity" and needs_masks):
                continue
            for name, tensor in store.held(state).items():
                key, parameter = f"{prefix}.{name}", parameter_of(name, state)
                dtype = str(tensor.dtype).removeprefix("torch.")
                packing = store.packings.get(parameter) if state != "sparsity" else None
                if packing is None:
                    yield TensorSpec(key, tuple(tensor.shape), dtype), parameter, tensor
                    continue
                values = packing.values(tensor)
                spec = PackedSpec(key, tuple(values.shape), dtype, whole=packing.shape)
                yield spec, parameter, values

    def _whole_specs(self, state: str) -> dict[str, TensorSpec]:
        """Return key, whole shape and dtype of the tensors of a state, by their names."""
        prefix = f"{CLUSTER_STATES[state]}."
        return {
            spec.name.removeprefix(prefix): TensorSpec(
                spec.name, spec.whole if isinstance(spec, PackedSpec) else spec.shape, spec.dtype
            )
            for spec in self.layout([state])
            if spec.name.startswith(prefix)
        }
