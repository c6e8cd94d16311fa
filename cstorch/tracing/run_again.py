"""Another run of a traced step's Python: which program its recording needs.

Constants that differ from the recording before become inputs of the program. Then every further
run costs a recording, and no compile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from cstorch.session.session import Session
from cstorch.tracing.call import Call
from cstorch.tracing.fitted_step import FittedStep
from cstorch.tracing.recorded_step import RecordedStep
from cstorch.tracing.recording_step import Recordings, compiled_with_inputs
from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.derivation.step_inputs import Place, differences, value_at

log = logging.getLogger("waferstream")


@dataclass(frozen=True)
class RunAgain:
    """A recording of a step that has a program, and the constants in which it differs from that."""

    fitted: FittedStep
    recordings: Recordings
    recorded: RecordedStep
    changed: set[Place] | None  # None if ops differ, too
    seconds: float

    @classmethod
    def of(cls, session: Session, call: Call, fitted: FittedStep) -> RunAgain:
        """Run the Python of a step for one call."""
        assert fitted.fit is not None, "a step that is watched has no key"
        started_s = time.perf_counter()
        recordings = Recordings(session, call)
        recorded = recordings.of(fitted.fit.cut.size)
        changed = differences(_graph(fitted.recorded), _graph(recorded))
        return cls(fitted, recordings, recorded, changed, time.perf_counter() - started_s)

    @property
    def keeps_program(self) -> bool:
        """Whether the program of the step computes what was recorded, with other inputs."""
        is_updated = self.recorded.recorder.optimizer is not None
        if is_updated != (self.fitted.optimizer is not None):
            return False
        return self.changed is not None and self.changed <= self.fitted.inputs.keys()

    def kept(self) -> FittedStep:
        """Return the step with its program, and with the closures and results of this run."""
        return replace(self.fitted, recorded=self.recorded)

    def with_inputs(self, num_steps: int) -> FittedStep | None:
        """Return the step with a program whose inputs are the constants that have changed.

        None if there is none: ops differ, or constants decide more than what kernels compute.
        The steps called so far have to be done.
        """
        fitted = self.fitted
        if self.changed is None or fitted.fit is None:
            return None
        names = dict(fitted.inputs)
        for place in sorted(self.changed - names.keys(), key=repr):
            names[place] = f"step_input_{len(names)}"
        compiled = compiled_with_inputs(fitted.recorded, self.recorded, fitted.fit, names)
        if compiled is None:
            return None
        log.info(
            "%d constants of the traced step follow state in Python, and are inputs of its program."
            " Its Python runs in every step that changes such state (%.2f s each); a tensor of the"
            " batch, or a buffer of the model, costs nothing",
            len(names),
            self.seconds,
        )
        return replace(
            self.kept(),
            compiled=compiled,
            optimizer=self.recorded.optimizer_of(compiled, num_steps),
            settings=self.recorded.recorder.settings(),
            num_steps=num_steps,
            inputs=names,
        )

    def values(self, fitted: FittedStep) -> Mapping[str, torch.Tensor]:
        """Return the values of the inputs of a program in this step."""
        graph = _graph(self.recorded)
        read = {each.name for each in fitted.compiled.program.step_inputs}
        places = {place: name for place, name in fitted.inputs.items() if name in read}
        return {name: value_at(graph, place) for place, name in places.items()}


def _graph(recorded: RecordedStep) -> Captured:
    assert recorded.recording is not None, "the forward pass has run"
    return recorded.recording.captured
