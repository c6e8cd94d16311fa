"""Listeners of params.yaml, registered while the model is trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

import cstorch
from cstorch.closures import step_closure
from cstorch.current import current_backend
from cstorch.listeners.hooks import Hook, register_traced_tensor_hook
from cstorch.listeners.listener import ActivationDump, NormTensorListener, SummaryTensorListener
from cstorch.recording.recorder import Recorder, active_recorder
from cstorch.utils.tensorboard import write_tensor
from waferstream.config.params import InitConfig
from waferstream.config.sections import callbacks
from waferstream.training.observers.observer import Observer


class TensorNames:
    """Hook that writes the names of all tensors that listeners can hear.

    Each loop's folder gets ``available_tensor_names.txt``: name, shape of one micro-batch, dtype.
    """

    reads_outlines_only = True

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}
        self._trace: Recorder | None = None
        self._write_later = step_closure(self._write)

    def __call__(self, tensor: torch.Tensor, name: str) -> None:
        """Note what a module returns."""
        trace = active_recorder.get()
        if trace is not self._trace:
            self._trace, self._lines = trace, {}
            self._write_later()
        self._lines[name] = f"{name}, {tuple(tensor.shape)}, {tensor.dtype}"

    def _write(self) -> None:
        executor = cstorch.current_executor()
        assert executor is not None, "closures run in a loop"
        path = Path(executor.artifact_dir) / "available_tensor_names.txt"
        if not path.exists():
            path.write_text("".join(f"{self._lines[name]}\n" for name in sorted(self._lines)))


class InputLog:
    """Batches of training, written to ``<folder>/input/<name>/<step>.npy`` at log steps."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._write_later = step_closure(self._write)

    def on_train_step_start(self, trainer: object, model: object, batch: Any) -> None:  # noqa: ARG002
        """Hear the batch of a step while it is traced."""
        for path, leaf in pytree.tree_leaves_with_path(batch):
            if isinstance(leaf, torch.Tensor):
                names = [str(getattr(key, "key", getattr(key, "idx", key))) for key in path]
                self._write_later("/".join(["input", *names]), leaf)

    def _write(self, tag: str, tensor: torch.Tensor) -> None:
        write_tensor(self._folder, tag, tensor, current_backend().global_step)


def make_input_logs(init: InitConfig, folder: Path) -> list[object]:
    """Return the callbacks that write the batches of training: that of ``LogInputSummaries``."""
    is_asked = init.callback(callbacks.LogInputSummaries) is not None
    return [InputLog(folder / "cs_events")] if is_asked else []


def make_listeners(init: InitConfig, observers: Sequence[Observer]) -> list[Hook]:
    """Return the listeners of a configuration; what they compute goes to observers."""

    def send(step: int, numbers: Mapping[str, float]) -> None:
        for observer in observers:
            observer.summarized(step, numbers)

    listeners: list[Hook] = []
    for entry in init.callbacks:
        match entry:
            case callbacks.NormTensorListener(listener_name=name, tensor_names=globs):
                listeners.append(NormTensorListener(name, globs, send))
            case callbacks.SummaryTensorListener(listener_name=name, tensor_names=globs):
                listeners.append(SummaryTensorListener(name, globs, send))
            case callbacks.DumpActivations(outdir=outdir, buffer_steps=buffer_steps):
                folder = outdir or init.model_dir / "act_dumps"
                listeners.append(ActivationDump(folder, buffer_steps))
            case callbacks.DumpAvailableTensorNames():
                listeners.append(TensorNames())
    return listeners


@contextmanager
def listening(listeners: Sequence[Hook]) -> Iterator[None]:
    """Let listeners hear the steps that are traced inside the block; write what they have kept."""
    handles = [register_traced_tensor_hook(listener) for listener in listeners]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for listener in listeners:
            if isinstance(listener, ActivationDump):
                listener.flush()
