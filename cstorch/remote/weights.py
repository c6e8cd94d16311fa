"""The parameters of the compiled model: copies in the user's process, values in MemoryX."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from cstorch.metrics.metric import standing_alone
from cstorch.remote.lazy import LazyTensor
from cstorch.remote.shared_storage import tie_shared
from cstorch.remote.step_buffers import StepBuffers
from cstorch.remote.tensor import Holder, Remote, RemoteParameter, RemoteTensor
from waferstream.core.errors import ConfigError


class Weights:
    """All parameters of a model by name, as remote tensors held by ``holder``."""

    def __init__(self, model: nn.Module, holder: Holder) -> None:
        self._model = model
        self._holder = holder
        self._ties = tie_shared(model)
        self._remotes = {
            name: _adopt(name, parameter, holder) for name, parameter in model.named_parameters()
        }
        for old, new in {tie.old: tie.new for tie in self._ties}.items():
            _tie(old, new)
        self.state = StepBuffers(lambda: _modules_of(model), holder)

    def local(self) -> dict[str, torch.Tensor]:
        """Return the storages in this process as they are, by name."""
        return {name: remote.plain for name, remote in self._remotes.items()}

    def initial_parts(self) -> Iterator[dict[str, torch.Tensor]]:
        """Yield all values, first those in memory; a lazy one is initialized, yielded and freed."""
        lazy = self._lazy()
        in_memory = {name: r.plain for name, r in self._remotes.items() if r not in lazy}
        yield {**in_memory, **self.state.local()}
        for record in dict.fromkeys(remote.record for remote in lazy):
            for remote in record.values():
                yield {remote.name: remote.plain} if remote in lazy else {}
                remote.release()

    def note_sent(self) -> None:
        """Note that MemoryX holds the values of all lazy parameters."""
        for remote in self._lazy():
            remote.outdate()

    def tied(self) -> dict[str, str]:
        """Return the further names of parameters in ``model.state_dict()``, and the first of each.

        A tied output layer has the name of the embedding, too.
        """
        return {
            name: value._remote.name
            for name, value in self._model.state_dict().items()
            if name not in self._remotes
            and isinstance(value, RemoteTensor)
            and value._remote.name in self._remotes
        }

    def buffers(self) -> dict[str, torch.Tensor]:
        """Return the tensors of ``model.state_dict()`` that are no parameters."""
        others = {*self._remotes, *self.tied()}
        return {
            name: value
            for name, value in self._model.state_dict().items()
            if isinstance(value, torch.Tensor) and name not in others
        }

    def are_in(self, state_dict: Mapping[str, object]) -> bool:
        """Return whether a dict has every parameter under its name, itself or an alias of it."""
        return all(
            getattr(state_dict.get(name), "_remote", None) is remote
            for name, remote in self._remotes.items()
        )

    def fetch(self) -> None:
        """Bring every parameter and buffer up to date with MemoryX, but for lazy ones."""
        self.state.fetch()
        for remote in self._initialized():
            remote.fetch()

    def make_plain(self) -> None:
        """Turn parameters and buffers into ordinary ones, with the values that they have here."""
        self.state.make_plain()
        for remote in self._initialized():
            remote.make_plain()
        for tie in self._ties:
            tie.undo()

    def outdate(self, names: Collection[str] | None = None) -> None:
        """Note that MemoryX, or a checkpoint, has other values for ``names`` (default: all)."""
        for name, remote in self._remotes.items():
            if names is None or name in names:
                remote.outdate()

    def take_changes(self) -> dict[str, torch.Tensor]:
        """Return the values that were written in this process since the last call."""
        changed = {name: r.plain for name, r in self._remotes.items() if r.take_change()}
        return {**changed, **self.state.take_changes()}

    def adopt_replaced(self) -> None:
        """Take parameters and buffers that the user has put in place of registered ones.

        Steps that were called before are run with the old ones.

        Raises:
            ConfigError: Parameters were added or removed, or have another shape.
        """
        found = dict(self._model.named_parameters())
        if found.keys() != self._remotes.keys():
            raise ConfigError(
                "the model must keep its parameters",
                code="parameters-changed",
                value=", ".join(sorted(found.keys() ^ self._remotes.keys())),
                rule="MemoryX holds the parameters that the model had when it was compiled",
                remedy="add, remove and untie parameters before cstorch.compile",
            )
        for name, remote in self._remotes.items():
            if found[name].shape != remote.shape:
                raise ConfigError(
                    "a parameter must keep its shape",
                    code="parameter-shape-changed",
                    where=name,
                    value=f"from {tuple(remote.shape)} to {tuple(found[name].shape)}",
                )
        replaced = {name for name, r in self._remotes.items() if r.tensor is not found[name]}
        if replaced:
            self._holder.settle()
        for name in replaced:
            self._remotes[name] = _adopt(name, found[name], self._holder)
            self._remotes[name].note_change()
        self.state.adopt_replaced()

    def _lazy(self) -> list[LazyTensor]:
        """Return the parameters that are not initialized yet."""
        return [r for r in self._remotes.values() if isinstance(r, LazyTensor) and r.is_pending]

    def _initialized(self) -> list[Remote]:
        """Return the parameters that have a value."""
        lazy = self._lazy()
        return [remote for remote in self._remotes.values() if remote not in lazy]


def as_arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Return tensors as arrays for a checkpoint, in which bfloat16 becomes float32."""
    return {
        name: (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).detach().numpy()
        for name, tensor in tensors.items()
    }


def _modules_of(model: nn.Module) -> dict[str, nn.Module]:
    """Return a model and the metrics outside of it, by name.

    Those of an earlier program that has ended, which nobody can read any more, are left out.
    """
    alone = {name: m for name, m in standing_alone(model).items() if not _is_lost(m)}
    return {"": model, **alone}


def _is_lost(module: nn.Module) -> bool:
    buffers = (buffer for buffer in module.buffers() if isinstance(buffer, RemoteTensor))
    return any(buffer._remote.is_lost for buffer in buffers)


def _tie(old: torch.Tensor, new: torch.Tensor) -> None:
    """Let a parameter that was replaced by another one of the same memory have its values."""
    old.__class__ = RemoteParameter
    old._remote = new._remote  # type: ignore[attr-defined]
    new._remote.num_tied += 1  # type: ignore[attr-defined]


def _adopt(name: str, parameter: nn.Parameter, holder: Holder) -> Remote:
    """Make a parameter remote, in place; its storage holds its value now.

    A parameter without memory (on the meta device, or fake) stays as it is. One that an earlier
    backend has made remote is read first.
    """
    if is_lazy(parameter):
        raise ConfigError(
            "every parameter must have a shape",
            code="parameter-uninitialized",
            where=name,
            rule="a lazy module of torch.nn (LazyLinear, ...) takes its shape from a first batch",
            remedy="call the model once on a batch before cstorch.compile",
        )
    if not parameter.is_floating_point():
        raise ConfigError(
            "every parameter must be of a floating-point type",
            code="parameter-not-real",
            where=name,
            value=parameter.dtype,
            rule="MemoryX holds real numbers in fp32, and the wafer computes with them",
            remedy="hold real and imaginary part as a last dimension of 2, and compute with both"
            if parameter.is_complex()
            else "register it as a buffer",
        )
    if isinstance(lazy := getattr(parameter, "_remote", None), LazyTensor) and lazy.is_pending:
        parameter.__class__ = RemoteParameter
        lazy.move_to(name, parameter, holder)
        return lazy
    if isinstance(parameter, RemoteTensor | RemoteParameter):
        parameter._remote.read()
        parameter.__class__ = RemoteParameter
    elif type(parameter) is nn.Parameter and not parameter.is_meta:
        # The object must stay the same, since optimizers and modules refer to it.
        parameter.__class__ = RemoteParameter
    elif type(parameter.data) is torch.Tensor and not parameter.is_meta:
        raise ConfigError(
            "every parameter must be a torch.nn.Parameter",
            code="parameter-class-unsupported",
            where=name,
            value=type(parameter).__name__,
            rule="values of other classes cannot be fetched from MemoryX",
        )
    remote = Remote(name, parameter, holder, is_fresh=True)
    if isinstance(parameter, RemoteParameter):
        parameter._remote = remote
    return remote
