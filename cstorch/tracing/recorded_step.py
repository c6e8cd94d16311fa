"""What one run of a traced step in Python leaves behind, and the programs that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cstorch.amp import stream_precision
from cstorch.backend import Backend
from cstorch.compile import Fit, compile_request, model_of
from cstorch.listeners.hooks import note_samples, traced_tensors
from cstorch.tracing.call import Call
from cstorch.tracing.clipping import recorded_clipping
from cstorch.tracing.foreign_steps import refused_foreign_steps
from cstorch.tracing.recorder import Recorder, recording, update_of
from wsc.compiler.artifact import ArtifactCache
from wsc.compiler.compile import compile_recorded, recorded_digest
from wsc.compiler.compiled import Compiled
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
    backend: Backend, call: Call, size: int, for_all_sizes: bool = False
) -> RecordedStep:
    """Run the user's function once, on a micro-batch of ``size`` samples."""
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
        traced_tensors(model),
    ):
        buffers = backend.traced_buffers()
        made = record(step, model, inputs, stream_precision(), buffers, for_all_sizes=for_all_sizes)
    return RecordedStep(backend, made, call, outputs, recorder)
