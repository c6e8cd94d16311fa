"""The loop over the batches of a run: steps, reports, checkpoints, and returns to a checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import cstorch
from cstorch.amp import GradScaler
from cstorch.loop.profiler import Profiler
from cstorch.optim.scheduler import Scheduler
from cstorch.utils.data import DataExecutor, DataLoader
from cstorch.utils.data.dataloader import BATCHES
from waferstream.core.errors import NotFiniteStepError
from waferstream.host.interrupts import Grace, end_quietly
from waferstream.training.checkpoints.changes import STATE
from waferstream.training.checkpoints.restoring import Restorer
from waferstream.training.checkpoints.saving import Saver
from waferstream.training.launch import STATE as WORKFLOW
from waferstream.training.launch import Launch
from waferstream.training.not_finite import NotFiniteRule
from waferstream.training.observers.observer import TrainingReporter
from waferstream.training.run import Run
from waferstream.training.run_plan import RunPlan, Stage
from waferstream.training.setup.model import make_scaler
from waferstream.training.setup.steps import Step
from waferstream.workload.special_tokens import SPECIAL_TOKENS

log = logging.getLogger("waferstream")


@dataclass(frozen=True)
class Work:
    """Data, step and plan of a training, the states that go on, and the record of its run."""

    loader: DataLoader
    step: Step
    plan: RunPlan
    reporter: TrainingReporter
    schedulers: Sequence[Scheduler]
    scaler: GradScaler
    record: Mapping[str, Any]


class TrainingLoop:
    """The loop of one training.

    Args:
        run: The run.
        saver: Writes its checkpoints.
        restorer: Takes it back to one.
        not_finite: What it does about steps that are not finite.
        work: What it trains.
        launch: The launch of a workflow that the run is; None where nobody manages it.
    """

    def __init__(
        self,
        run: Run,
        saver: Saver,
        restorer: Restorer,
        not_finite: NotFiniteRule,
        work: Work,
        launch: Launch | None = None,
    ) -> None:
        self._run = run
        self._init = run.init
        self._saver = saver
        self._restorer = restorer
        self._not_finite = not_finite
        self._work = work
        self._launch = launch
        seconds = self._init.checkpoint.grace_s
        self._grace = Grace(seconds, partial(_warn_of_grace, seconds))
        self._saves_when_ended = bool(work.plan.checkpoint_steps) or launch is not None
        self._completes = launch is not None and launch.is_last_phase

    @contextmanager
    def giving_grace(self) -> Iterator[None]:
        """Let a signal in the block, which trains all stages, end it after a checkpoint.

        A workflow that has nothing left to compute is not ended any more.
        """
        with self._grace.given():
            yield
        if self._completes:
            end_quietly(self._init.checkpoint.grace_s)
        else:
            self._grace.end()

    def train(self, stage: Stage, profiler: Profiler) -> None:
        """Train all steps of a stage; go back as often as a step is not finite, if asked for.

        Raises:
            NotFiniteStepError: Going back is not asked for, or there is no checkpoint.
            ApplianceNanError: The run went back too often.
        """
        loader = self._work.loader
        parts = self._not_finite.parts(stage.first, stage)
        while parts:
            part, left_out = parts.pop(0)
            if left_out:
                loader.load_state_dict({BATCHES: loader.state_dict()[BATCHES] + left_out})
            try:
                self._train_part(part, profiler)
            except NotFiniteStepError as error:
                done = self._go_back(error)
                self._work.reporter.forget_after(done)
                parts = self._not_finite.parts(done + 1, stage)

    def _go_back(self, error: NotFiniteStepError) -> int:
        """Return to the newest checkpoint of the run, whose step it returns; leave out a batch."""
        self._saver.finish()
        path = self._restorer.newest_of_run() if self._not_finite.rolls_back else None
        if path is None:
            raise error
        self._not_finite.leave_out(error)
        log.warning(
            "%s: the run goes back to %s and leaves out the batch of step %d",
            error.what, path.name, error.step,
        )  # fmt: skip
        work, session = self._work, self._run.session
        self._restorer.restore(path)
        session.reload()
        work.scaler.current = make_scaler(self._init).current  # step 0 has skipped no step
        self._restorer.load_states(work.scaler, work.schedulers, work.loader)
        return session.global_step

    def _train_part(self, stage: Stage, profiler: Profiler) -> None:
        plan = self._work.plan
        executor = DataExecutor(
            self._work.loader,
            num_steps=len(stage),
            activation_steps=stage.relative(set(plan.log_steps)),
            checkpoint_steps=stage.relative(set(plan.checkpoint_steps)),
        )
        executor.profiler = profiler
        if self._saves_when_ended:
            executor.is_ending = self._is_asked

        @cstorch.step_closure
        def report(_loss: object, position: int) -> None:
            is_asked = self._is_asked()
            self._not_finite.take(executor.results)
            self._work.reporter.take(executor.results, stage, position, is_last=is_asked)
            self._saver.check()
            if self._saves_when_ended:
                self._grace.begin()
            if is_asked and not executor.is_checkpoint_step:
                save_now()

        def save_now() -> None:
            step = stage.first + executor.iteration
            self._save(self._objects(step))
            if not self._completes or step < plan.end or stage.evaluates:
                self._grace.end()

        save = cstorch.checkpoint_closure(save_now)
        initial = self._objects(plan.start) if self._saves_initially else {}

        about = self._run.about
        for index, batch in enumerate(executor):
            self._run.callbacks.call("on_train_batch_start", *about, batch, index)
            loss = self._work.step(batch)  # the first call installs the program
            if self._saves_initially:
                self._save(initial)
            report(loss, loss.position)  # closures run when the step is done
            outputs = {"loss": loss}
            self._run.callbacks.call("on_train_batch_end", *about, outputs, batch, index)
            save()

    @contextmanager
    def saving_when_asked(self, stage: Stage) -> Iterator[Callable[[], bool] | None]:
        """Save the last step of a stage if a signal ends what runs after it.

        Yields:
            What says whether a signal has arrived; None where the run saves nothing.
        """
        if not self._saves_when_ended:
            yield None
            return
        yield self._is_asked
        if self._is_asked() and stage.last not in self._work.plan.checkpoint_steps:
            self._save(self._objects(stage.last))
        self._grace.end()

    def _is_asked(self) -> bool:
        """Return whether a signal has asked for the end of the run, which is to be saved."""
        return self._grace.is_asked

    @property
    def _saves_initially(self) -> bool:
        """Whether a checkpoint of the state before the first step is still due."""
        if self._saver.newest is not None or not self._run.session.settings.is_e2e_execution:
            return False
        if self._not_finite.rolls_back and not self._restorer.is_whole:
            return True
        return self._init.checkpoint.save_initial_checkpoint and self._restorer.path is None

    def _save(self, objects: dict[str, Any]) -> None:
        """Save a checkpoint, to whose states callbacks may add their own, of JSON types."""
        self._run.callbacks.call("on_save_checkpoint", self._run.trainer, objects)
        if self._saver.save(objects):
            newest = str(self._saver.newest)
            self._run.callbacks.call("on_after_save_checkpoint", self._run.trainer, newest)

    def _objects(self, step: int) -> dict[str, Any]:
        """Return the states of a checkpoint after a step that are not tensors."""
        work = self._work
        objects: dict[str, Any] = {
            "global_step": step,
            "seed": self._init.seed,
            STATE: work.record,
            "schedulers": [scheduler.state_dict() for scheduler in work.schedulers],
            "dataloader": work.loader.state_dict(),
        }
        if work.scaler.dynamic:
            objects["grad_scaler"] = work.scaler.state_dict()
        if self._restorer.special_tokens:
            objects[SPECIAL_TOKENS] = self._restorer.special_tokens
        if self._launch is not None:
            is_planned = step in work.plan.checkpoint_steps
            objects[WORKFLOW] = self._launch.state(work.plan.start, is_planned=is_planned)
        return objects


def _warn_of_grace(seconds: float) -> None:
    log.warning(
        "Interrupted: a checkpoint is saved after the current step, within %g s "
        "(checkpoint.grace_s). Interrupt again to end at once",
        seconds,
    )
