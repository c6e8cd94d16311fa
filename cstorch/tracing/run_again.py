"""Whether the Python of a traced step has to run again, and which program another run needs.

The Python of a step is recorded, and a program of the cluster takes its place. What Python reads
besides tensors (a counter of the model, a schedule of the program, a clock) is a constant of that
program. So Python runs

    in the first two steps   always: what differs between two recordings of one state is read from
                             where nobody can look, such as a clock
    in every step            if a run has changed state that it can read, or two of them differ
    after a change           if the program around the step has changed state that it can read

and the recording decides whether the program of the cluster stays. Constants that differ from the
recording before become inputs of the program. Then every further run costs a recording, and no
compile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import nn

from cstorch.session.session import Session
from cstorch.tracing.call import Call, is_constant
from cstorch.tracing.fitted_step import FittedStep
from cstorch.tracing.python_state import PythonState
from cstorch.tracing.recorded_step import RecordedStep
from cstorch.tracing.recording_step import Recordings, compiled_with_inputs
from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.derivation.step_inputs import Place, differences, value_at

log = logging.getLogger("waferstream")


class StateWatch:
    """The state in Python that one traced step can read.

    Args:
        call: The first call of the step.
        model: The model of the program.
    """

    def __init__(self, call: Call, model: nn.Module) -> None:
        objects = [x for x in call.leaves if not isinstance(x, torch.Tensor) and not is_constant(x)]
        self._roots = (call.function, model, *objects)
        self._state: PythonState | None = None
        self._num_runs = 0
        self._is_cost_noted = False
        self.has_checked_counts = False
        """Whether it is known that what a run counts does not follow the samples."""
        self._has_moved = False  # the last run has changed the state
        self._is_new = False  # the state before the last run is not that before the run before it
        self._reads_hidden = False  # two runs of one state were not equal

    def must_run(self) -> bool:
        """Return whether the next step may need another program than the last one."""
        assert self._state is not None, "a step is installed after it has run"
        self._is_new = self._has_moved or not self._state.is_current()
        return self._num_runs < 2 or self._is_new or self._reads_hidden

    def note_cost(self, seconds: float) -> None:
        """Say once that a step changes state which decides nothing, and what that costs."""
        if self._num_runs > 2 and self._has_moved and not self._is_cost_noted:
            self._is_cost_noted = True
            log.info(
                "The traced step changes state in Python, so that its Python runs in every step"
                " (%.2f s each); count in the loop or in a @cstorch.step_closure, where it costs"
                " nothing",
                seconds,
            )

    @contextmanager
    def running(self) -> Iterator[PythonState]:
        """Watch the Python of the step run inside the block; yield the state before it."""
        before = PythonState(*self._roots)
        yield before
        self._num_runs += 1
        self._state = PythonState(*self._roots)
        if self._state.mark_traced():
            self._state = PythonState(*self._roots)
        self._has_moved = before.has_drawn() or not before.is_current()

    def note_other_graph(self) -> None:
        """Note that the last run has recorded another graph than the one before."""
        self._reads_hidden |= not self._is_new


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
