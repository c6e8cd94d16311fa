"""Listeners: summaries and dumps of the tensors that modules return, as results of a traced step.

A listener computes a few numbers for each sample inside the step, so that what it receives does not
depend on micro-batches or systems. It hears what has a row for each sample: activations by the name
``<module>.fwd``, and the gradients with respect to them by ``<module>.bwd``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import torch

from cstorch.closures import step_closure
from cstorch.current import current_session
from cstorch.listeners.hooks import has_rows
from waferstream.host.files import replacing

Receive = Callable[[int, Mapping[str, float]], None]
"""Takes a step of training and numbers by name."""


class TensorListener(ABC):
    """A hook for ``register_traced_tensor_hook`` that hears tensors by their names.

    Args:
        listener_name: The first part of the names of what it computes.
        tensor_names: Globs of the names of tensors, such as ``layers.*.fwd``.
    """

    def __init__(self, listener_name: str, tensor_names: Sequence[str] = ("*",)) -> None:
        self.listener_name = listener_name
        self.tensor_names = tuple(tensor_names)
        self._take_later = step_closure(self._take)

    def __call__(self, tensor: torch.Tensor, name: str) -> None:
        """Hear what a module returns, and the gradient with respect to it."""
        if not tensor.is_floating_point() or not has_rows(tensor, name):
            return
        self._hear(tensor, name)
        backward = name.replace(".fwd", ".bwd")
        if tensor.requires_grad and self._matches(backward):
            tensor.register_hook(lambda gradient: self._hear(gradient, backward))

    @abstractmethod
    def of_samples(self, tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return tensors with a row for each sample, computed inside the step."""

    @abstractmethod
    def receive(self, step: int, name: str, values: Sequence[torch.Tensor]) -> None:
        """Receive what ``of_samples`` has returned, of the whole batch."""

    def _matches(self, name: str) -> bool:
        return any(fnmatchcase(name, glob) for glob in self.tensor_names)

    def _hear(self, tensor: torch.Tensor, name: str) -> None:
        if self._matches(name):
            self._take_later(name, *self.of_samples(tensor.detach()))

    def _take(self, name: str, *values: torch.Tensor) -> None:
        self.receive(current_session().global_step, name, values)


class NormTensorListener(TensorListener):
    """The L2 norm of each tensor over the whole batch."""

    def __init__(self, listener_name: str, tensor_names: Sequence[str], send: Receive) -> None:
        super().__init__(listener_name, tensor_names)
        self._send = send

    def of_samples(self, tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (_rows(tensor).square().sum(1),)

    def receive(self, step: int, name: str, values: Sequence[torch.Tensor]) -> None:
        norm = math.sqrt(float(values[0].double().sum()))
        self._send(step, {f"{self.listener_name}/{name}/norm": norm})


class SummaryTensorListener(TensorListener):
    """Mean, standard deviation, minimum and maximum of each tensor over the whole batch."""

    def __init__(self, listener_name: str, tensor_names: Sequence[str], send: Receive) -> None:
        super().__init__(listener_name, tensor_names)
        self._send = send

    def of_samples(self, tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = _rows(tensor)
        mean = rows.mean(1)
        variance = (rows - mean.unsqueeze(1)).square().mean(1)
        return mean, variance, rows.amin(1), rows.amax(1)

    def receive(self, step: int, name: str, values: Sequence[torch.Tensor]) -> None:
        means, variances, least, most = (value.double() for value in values)
        mean = means.mean()
        # The variance of all elements is that inside the samples plus that of their means.
        variance = (variances + (means - mean).square()).mean()
        numbers = {"mean": mean, "std": variance.sqrt(), "min": least.min(), "max": most.max()}
        prefix = f"{self.listener_name}/{name}"
        self._send(step, {f"{prefix}/{key}": float(value) for key, value in numbers.items()})


class ActivationDump(TensorListener):
    """Files with the activations of whole batches: ``act_dump_<step>.npz``.

    A file has an array ``<step>.<tensor>`` for each tensor of up to ``buffer_steps`` steps; with
    None one file has all, written by ``flush``.
    """

    def __init__(self, outdir: Path, buffer_steps: int | None = None) -> None:
        super().__init__("act_dump", ("*.fwd", "*.fwd.*"))
        self._outdir = outdir
        self._buffer_steps = buffer_steps
        self._arrays: dict[str, np.ndarray] = {}
        self._steps: list[int] = []

    def of_samples(self, tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (tensor.float(),)

    def receive(self, step: int, name: str, values: Sequence[torch.Tensor]) -> None:
        if step not in self._steps:
            if len(self._steps) == self._buffer_steps:
                self.flush()
            self._steps.append(step)
        self._arrays[f"{step}.{name}"] = values[0].numpy()

    def flush(self) -> None:
        """Write the arrays that are not in a file yet."""
        if not self._steps:
            return
        self._outdir.mkdir(parents=True, exist_ok=True)
        path = self._outdir / f"act_dump_{self._steps[-1]}.npz"
        with replacing(path) as partial, partial.open("wb") as file:
            np.savez(file, **self._arrays)  # type: ignore[arg-type]
        self._arrays, self._steps = {}, []


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in fp32 with all elements of a sample in one row."""
    return tensor.float().reshape(tensor.shape[0], -1)
