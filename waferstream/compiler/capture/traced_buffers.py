"""The buffers of a model while a step is traced: which constant of the graph is which buffer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

from waferstream.compiler.results.step_means import StepMean
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.program.program import StepMeanSpec


class TracedBuffers:
    """The buffers of some modules while a step is traced: plain tensors whose names are known.

    Args:
        modules: Modules by the prefix of the names of their buffers.
        state: Names of buffers that are known to change between steps.
    """

    def __init__(self, modules: Mapping[str, nn.Module], state: Collection[str] = ()) -> None:
        self.means = tuple(_means(modules))
        self.state = frozenset(state).union(*(mean.kept for mean in self.means))
        self.names: dict[torch.Tensor, str] = {}  # of the plain tensors
        self.host_reads: set[str] = set()  # names of buffers whose values Python has read
        self._plain: dict[torch.Tensor, torch.Tensor] = {}
        self._places: list[tuple[nn.Module, str, torch.Tensor]] = []
        for prefix, module in modules.items():
            for path, owner in module.named_modules(prefix=prefix):
                for leaf, buffer in owner._buffers.items():
                    if buffer is not None:
                        self._add(owner, leaf, f"{path}.{leaf}" if path else leaf, buffer)

    def _add(self, owner: nn.Module, leaf: str, name: str, buffer: torch.Tensor) -> None:
        if buffer not in self._plain:
            with torch._C.DisableTorchFunctionSubclass():
                # make_fx runs ops on single constants for real, also those that overwrite.
                plain = buffer.detach() if buffer.numel() > 1 else buffer.detach().clone()
            self._plain[buffer] = plain
            self.names[plain] = name
        self._places.append((owner, leaf, buffer))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the plain tensors in the places of the buffers."""
        for owner, leaf, buffer in self._places:
            owner._buffers[leaf] = self._plain[buffer]
        try:
            yield
        finally:
            for owner, leaf, buffer in self._places:
                owner._buffers[leaf] = buffer

    def note_host_read(self, tensors: Iterable[object]) -> None:
        """Note that Python reads the values of tensors, some of which may be buffers."""
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor) and tensor in self.names:
                self.host_reads.add(self.names[tensor])

    def replaced(self) -> dict[str, torch.Tensor]:
        """Return the tensors that the step has put in the places of buffers, by name.

        Raises:
            ApplianceCompilationError: One has another shape or dtype than the buffer.
        """
        found: dict[str, torch.Tensor] = {}
        for owner, leaf, buffer in self._places:
            own, now = self._plain[buffer], owner._buffers.get(leaf)
            if now is None or now is own or self._is_plain(now):
                continue
            name = self.names[own]
            if (now.shape, now.dtype) != (own.shape, own.dtype):
                raise ApplianceCompilationError(
                    "a buffer must keep its shape and dtype in a step",
                    code="state-shape-changed",
                    where=name,
                    value=f"from {tuple(own.shape)}, {own.dtype} to {tuple(now.shape)}, "
                    f"{now.dtype}",
                    rule="a step is a fixed program",
                )
            found[name] = now.detach()
        return found

    def means_among(self, written: Collection[str]) -> tuple[StepMeanSpec, ...]:
        """Return the means to which a step that writes some buffers adds."""
        return tuple(mean for mean in self.means if mean.total in written)

    def _is_plain(self, tensor: torch.Tensor) -> bool:
        return any(tensor is plain for plain in self.names)


def _means(modules: Mapping[str, nn.Module]) -> Iterator[StepMeanSpec]:
    """Yield the means over steps among modules and their parts."""
    for prefix, module in modules.items():
        for path, part in module.named_modules(prefix=prefix):
            if isinstance(part, StepMean):
                yield part.spec(f"{path}." if path else "")
