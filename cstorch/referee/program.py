"""The check of a program: its first steps on its cluster, and as plain PyTorch on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cstorch.current import current_session
from cstorch.referee.op_log import OpLog, RanStep
from cstorch.referee.origin import Origin, first_micro_batch, origin_of, run_recording
from cstorch.referee.plain_loop import like_a_run
from cstorch.referee.report import Report
from cstorch.referee.rounds import Rounds, rounds_of
from cstorch.referee.verdict import Verdict, first_different, judge_all
from cstorch.session.session import Session, model_of
from cstorch.witness import Compute, StepsDone, StepValues, Witness, copy_of
from waferstream.compiler.capture.captured import Captured
from waferstream.core.errors import CheckError

Run = Callable[[Witness], None]
"""Runs a program anew under a witness, until the steps to watch are done or it ends."""


def check_program(run: Run, steps: int) -> Report:
    """Compare the first ``steps`` steps of a program with plain PyTorch, and return the findings.

    The program runs six times, or seven: on its cluster, in this process; then on the CPU, where
    its steps are plain PyTorch on whole batches, twice as it is and with random rounding; and again
    to find the origin of a difference. A ``cstorch.Trainer`` in it checks its own steps.

    Raises:
        CheckError: The program trains no step, or does not repeat itself.
    """
    recording = _Recording()
    witness = Witness(steps, after_step=recording.note)
    run(witness)
    if isinstance(witness.report, Report):
        return witness.report
    found = witness.found
    if not found:
        raise CheckError(
            "the program trains no step",
            code="nothing-to-check",
            rule="a check compares steps of training in an executor loop or a cstorch.Trainer",
        )

    def values_of(rounding: int | None) -> Sequence[StepValues]:
        around = partial(like_a_run, recording.rounds, rounding=rounding)
        plain = Witness(len(found), "CPU", around)
        run(plain)
        return plain.found

    verdicts = judge_all(found, values_of)
    worst = first_different(verdicts)
    origin = None if worst is None else _origin(run, worst, recording)
    return Report(verdicts, recording.rounds, origin)


class _Recording:
    """The step of a program as its cluster runs it."""

    rounds: Rounds
    captured: Captured

    def note(self, step: Any) -> None:
        """Take a traced step that the cluster has just run."""
        self.rounds = rounds_of(current_session())
        self.captured = step.recorded_at(self.rounds.cut.size)


def _origin(run: Run, verdict: Verdict, recording: _Recording) -> Origin:
    """Return from where on a step differs."""
    probe = _Probe(verdict.step, recording)

    @contextmanager
    def around(step: int) -> Iterator[None]:
        is_probed = step == verdict.step
        rounds = probe.alone if is_probed else recording.rounds
        with probe.log if is_probed else nullcontext(), like_a_run(rounds, step):
            yield

    run(Witness(verdict.step, "CPU", around, probe))
    assert probe.plain is not None, "the step has run"
    assert probe.recorded is not None, "the step has run"
    return origin_of(verdict, probe.plain, probe.recorded)


@dataclass
class _Probe:
    """Runs a step on its first micro-batch, in Python and as it was recorded; keeps the ops."""

    step: int
    recording: _Recording
    log: OpLog = field(default_factory=OpLog)
    """The ops of Python."""

    plain: RanStep | None = None
    recorded: RanStep | None = None

    @property
    def alone(self) -> Rounds:
        """How a run of the first micro-batch alone rounds."""
        return first_micro_batch((), self.recording.rounds)[1]

    def __call__(self, compute: Compute, arguments: Any, session: Session) -> None:
        if session.global_step + 1 != self.step:
            return
        first, alone = first_micro_batch(arguments, self.recording.rounds)
        masters = copy_of(model_of(session).state_dict())
        captured = self.recording.captured
        self.recorded = run_recording(captured, masters, first, alone, self.step)
        self.plain = RanStep(self.log.ops, compute(*first).gradients)
        raise StepsDone
