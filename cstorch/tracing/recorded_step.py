"""What one run of a traced step in Python leaves behind, beside its graph."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cstorch.optim.parameter_updates import refuse_clipped_ties
from cstorch.optim.state import state_of
from cstorch.recording.recorder import Recorder, update_of
from cstorch.session.session import Session, model_of
from cstorch.tracing.call import Call
from waferstream.compiler.compiled import Compiled
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.optimizer import OptimizerSpec

if TYPE_CHECKING:
    from waferstream.compiler.derivation.recording import Recording


@dataclass(frozen=True)
class RecordedStep:
    """What the only run of a step in Python left behind."""

    session: Session
    recording: Recording | None  # None if the forward pass was skipped
    call: Call
    outputs: Any  # the placeholders that the step returns to the loop
    recorder: Recorder

    def optimizer_of(self, compiled: Compiled, num_steps: int) -> OptimizerSpec | None:
        """Return the update after a step; arguments and errors as of ``update_of``."""
        trains = compiled.program.kind.updates
        if (state := state_of(self.recorder.optimizer)) is not None:
            state.note_trained(compiled.program.trained)
        done = self.session.global_step, self.session.steps.resumed
        update = update_of(self.recorder, model_of(self.session), num_steps, trains, *done)
        if update is not None and self.recorder.optimizer is not None:
            refuse_clipped_ties(update, self.recorder.optimizer.param_groups)
            _refuse_sparse(update, {each.parameter for each in compiled.gradient_kernels})
        return update


def _refuse_sparse(update: OptimizerSpec, changed: Collection[str]) -> None:
    """Raise for a weight with a mask whose gradient the step changes."""
    for spec in update.sparsity:
        if spec.name in changed:
            raise ApplianceCompilationError(
                "the gradient of a sparse weight is changed by a hook, or by the step",
                code="gradient-op-of-sparse-weight",
                value=spec.name,
                rule="MemoryX has the gradients of its non-zeros only",
                remedy="remove the hook, or leave this weight dense",
            )
