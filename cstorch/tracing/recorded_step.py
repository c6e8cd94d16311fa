"""What one run of a traced step in Python leaves behind, and the programs that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from cstorch.amp import stream_precision
from cstorch.backend import Backend
from cstorch.compile import Fit, compile_request, model_of
from cstorch.listeners.hooks import Names, itself, note_samples, traced_tensors
from cstorch.tracing.call import Call
from cstorch.tracing.clipping import recorded_clipping
from cstorch.tracing.foreign_steps import refused_foreign_steps
from cstorch.tracing.forward import Forward
from cstorch.tracing.recorder import Recorder, recording, update_of
from cstorch.tracing.repeated_layers import RepeatedLayers
from wsc.compiler.artifact import ArtifactCache
from wsc.compiler.capture import masters_of
from wsc.compiler.compile import compile_recorded, recorded_digest
from wsc.compiler.compiled import Compiled
from wsc.compiler.depth import CAPTURED_LAYERS
from wsc.compiler.recording import Recording, record
from wsc.core.optimizer import OptimizerSpec


@dataclass(frozen=True)
class RecordedStep:
    """What the only run of a step in Python left behind."""

    backend: Backend
    recording: Recording | None  # None if the forward pass was skipped
    call: Call
    outputs: Any  # the placeholders that the step returns to the loop
    recorder: Recorder

    def compiled_at(self, fit: Fit, cache: ArtifactCache | None = None) -> tuple[Compiled, bool]:
        """Return the program for a fit, and whether it came from the cache."""
        assert self.recording is not None, "a program from the cache fits"
        return compile_recorded(self.recording, compile_request(self.backend, fit), cache)

    def digest_at(self, fit: Fit) -> str:
        """Return the digest of the program for a fit, without compiling it."""
        assert self.recording is not None, "the forward pass has run"
        return recorded_digest(self.recording, compile_request(self.backend, fit))

    def optimizer_of(self, compiled: Compiled, num_steps: int) -> OptimizerSpec | None:
        """Return the update after a step; arguments and errors as of ``update_of``."""
        trains = compiled.program.mode == "train"
        done = self.backend.global_step, self.backend.steps.resumed
        return update_of(self.recorder, model_of(self.backend), num_steps, trains, *done)


def record_step(
    backend: Backend,
    call: Call,
    size: int,
    for_all_sizes: bool = False,
    forward: Forward | None = None,
) -> RecordedStep:
    """Run the user's function on a micro-batch of ``size`` samples.

    It runs once; that of a known ``forward`` pass whose layers are equal runs with few layers.
    """
    layers = RepeatedLayers.of(model_of(backend), forward) if for_all_sizes else None
    deep = None if layers is None else _record_few_layers(backend, call, size, layers)
    return deep or _record(backend, call, size, for_all_sizes)


def _record_few_layers(
    backend: Backend, call: Call, size: int, repeated: RepeatedLayers
) -> RecordedStep | None:
    """Return a step recorded without most of its layers; None if they turn out to differ."""
    with repeated.first(CAPTURED_LAYERS + 1):
        one_more = _record(backend, call, size, for_all_sizes=True, names=lambda _: ())
    with repeated.first(CAPTURED_LAYERS):
        few = _record(backend, call, size, for_all_sizes=True, names=repeated.names)
    assert few.recording is not None, "it has just been made"
    assert one_more.recording is not None, "it has just been made"
    masters = masters_of(model_of(backend))
    whole = few.recording.with_all_layers(one_more.recording, repeated.stack, masters)
    return None if whole is None else replace(few, recording=whole)


def _record(
    backend: Backend, call: Call, size: int, for_all_sizes: bool, names: Names = itself
) -> RecordedStep:
    """Run the user's function once; hooks hear tensors of modules under ``names``."""
    outputs: Any = None

    def step(batch: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        nonlocal outputs
        note_samples(batch[0].shape[0])
        outputs = recorder.hand_out(call(batch))
        return recorder.results

    model = model_of(backend)
    inputs = [(f"input_{i}", t.new_empty(size, *t.shape[1:])) for i, t in enumerate(call.tensors)]
    with (
        recording() as recorder,
        recorded_clipping(model, recorder),
        refused_foreign_steps(),
        traced_tensors(model, names),
    ):
        buffers = backend.traced_buffers()
        made = record(step, model, inputs, stream_precision(), buffers, for_all_sizes=for_all_sizes)
    return RecordedStep(backend, made, call, outputs, recorder)
