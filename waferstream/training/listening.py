"""Listeners of params.yaml, registered while the model is trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from cstorch.listeners.hooks import register_traced_tensor_hook
from cstorch.listeners.listener import (
    ActivationDump,
    NormTensorListener,
    SummaryTensorListener,
    TensorListener,
)
from waferstream.config import callbacks
from waferstream.config.params import InitConfig
from waferstream.training.observers import Observer


def make_listeners(init: InitConfig, observers: Sequence[Observer]) -> list[TensorListener]:
    """Return the listeners of a configuration; what they compute goes to observers."""

    def send(step: int, numbers: Mapping[str, float]) -> None:
        for observer in observers:
            observer.summarized(step, numbers)

    listeners: list[TensorListener] = []
    for entry in init.callbacks:
        match entry:
            case callbacks.NormTensorListener(listener_name=name, tensor_names=globs):
                listeners.append(NormTensorListener(name, globs, send))
            case callbacks.SummaryTensorListener(listener_name=name, tensor_names=globs):
                listeners.append(SummaryTensorListener(name, globs, send))
            case callbacks.DumpActivations(outdir=outdir, buffer_steps=buffer_steps):
                listeners.append(ActivationDump(outdir, buffer_steps))
    return listeners


@contextmanager
def listening(listeners: Sequence[TensorListener]) -> Iterator[None]:
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
