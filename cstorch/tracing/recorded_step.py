"""What one run of a traced step in Python leaves behind, beside its graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cstorch.backend import Backend
from cstorch.compile import model_of
from cstorch.tracing.call import Call
from cstorch.tracing.recorder import Recorder, update_of
from wsc.compiler.compiled import Compiled
from wsc.core.optimizer.spec import OptimizerSpec

if TYPE_CHECKING:
    from wsc.compiler.derivation.recording import Recording


@dataclass(frozen=True)
class RecordedStep:
    """What the only run of a step in Python left behind."""

    backend: Backend
    recording: Recording | None  # None if the forward pass was skipped
    call: Call
    outputs: Any  # the placeholders that the step returns to the loop
    recorder: Recorder

    def optimizer_of(self, compiled: Compiled, num_steps: int) -> OptimizerSpec | None:
        """Return the update after a step; arguments and errors as of ``update_of``."""
        trains = compiled.program.mode == "train"
        done = self.backend.global_step, self.backend.steps.resumed
        return update_of(self.recorder, model_of(self.backend), num_steps, trains, *done)
