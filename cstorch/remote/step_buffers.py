"""Buffers that traced steps write: copies in the user's process, values on the cluster.

A buffer that no step writes is a constant of the programs that read it. As soon as a step writes
it, it becomes a remote tensor (``cstorch.remote.tensor``), held by the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import torch
from torch import nn

from cstorch.metrics.metric import Metric
from cstorch.remote.tensor import Holder, Remote, RemoteTensor
from waferstream.compiler.capture.traced_buffers import TracedBuffers


class StepBuffers:
    """The remote buffers of some modules by name.

    Args:
        modules: Returns the modules whose buffers a step may write, by the prefix of their names.
        holder: Where the values are.
    """

    def __init__(self, modules: Callable[[], Mapping[str, nn.Module]], holder: Holder) -> None:
        self._modules = modules
        self._holder = holder
        self._remotes: dict[str, Remote] = {}
        for name, buffer in self._found():
            if isinstance(buffer, RemoteTensor):  # an earlier backend has made it remote
                buffer._remote.read()
                self._adopt(name, buffer)

    def traced(self) -> TracedBuffers:
        """Return all buffers of the modules for one trace."""
        return TracedBuffers(self._modules(), self._remotes.keys())

    def constants(self) -> list[tuple[torch.Tensor, int]]:
        """Return the buffers that programs read as constants, and how often each was written."""
        parts = [part for module in self._modules().values() for part in module.modules()]
        return [
            (buffer, buffer._version)
            for part in parts
            if not isinstance(part, Metric)  # a program that reads its buffers writes them
            for buffer in part.buffers(recurse=False)
            if not isinstance(buffer, RemoteTensor)
        ]

    def adopt(self, names: Collection[str]) -> bool:
        """Make buffers remote; return whether any of them was a constant until now."""
        constants = {buffer for buffer, _ in self.constants()}
        new = [(name, buffer) for name, buffer in self._found() if name in names]
        new = [(name, buffer) for name, buffer in new if name not in self._remotes]
        for name, buffer in new:
            self._adopt(name, buffer)
        return any(buffer in constants for _, buffer in new)

    def adopt_replaced(self) -> None:
        """Take buffers that the user has put in place of remote ones."""
        if not self._remotes:
            return
        for name, buffer in self._found():
            remote = self._remotes.get(name)
            if remote is not None and remote.tensor is not buffer:
                self._holder.settle()
                self._adopt(name, buffer)

    def local(self) -> dict[str, torch.Tensor]:
        """Return the storages in this process as they are, by name."""
        return {name: remote.plain for name, remote in self._remotes.items()}

    def fetch(self) -> None:
        """Bring every remote buffer up to date with the cluster."""
        for remote in self._remotes.values():
            remote.fetch()

    def make_plain(self) -> None:
        """Turn the buffers into ordinary ones, with the values that they have here."""
        for remote in self._remotes.values():
            remote.make_plain()
        self._remotes.clear()

    def outdate(self, names: Collection[str]) -> None:
        """Note that the cluster is about to change these buffers."""
        for name in names:
            self._remotes[name].outdate()

    def take_changes(self) -> dict[str, torch.Tensor]:
        """Return the values that were written in this process since the last call."""
        return {name: r.plain for name, r in self._remotes.items() if r.take_change()}

    def _adopt(self, name: str, buffer: torch.Tensor) -> None:
        # The object must stay the same, since the user's program may refer to it.
        buffer.__class__ = RemoteTensor
        remote = Remote(name, buffer, self._holder, is_fresh=True)
        buffer._remote = remote  # type: ignore[attr-defined]
        remote.note_change()
        self._remotes[name] = remote

    def _found(self) -> Iterator[tuple[str, torch.Tensor]]:
        for prefix, module in self._modules().items():
            yield from module.named_buffers(prefix)
