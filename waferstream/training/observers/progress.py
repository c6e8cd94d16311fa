"""Progress of a run on the terminal and in its log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from waferstream.core.events import EvalProgress, TrainProgress
from waferstream.host.terminal import progress_bar
from waferstream.host.words import Words
from waferstream.training.observers.observer import EvaluationLog, TrainingLog

if TYPE_CHECKING:
    from waferstream.host.bars import Live


class Progress:
    """Progress bar and lines; on CPU and GPU no machine is emulated.

    The log of the run has the lines of the vendor's client.

    Args:
        machine: The name of the emulated machine.
        batch_size: Samples of a step.
        log: Appends a line to the log of the run.
        device: The kind of device.
        look: Returns the newest step that has begun, in any thread.
        words: Those of the lines on the terminal.
    """

    def __init__(
        self,
        machine: str,
        batch_size: int,
        log: Callable[[str], None],
        device: str,
        look: Callable[[], int],
        words: Words = "plain",
    ) -> None:
        self._look = look
        self._words = words
        self._machine = machine
        self._device = device
        self._batch_size = batch_size
        self._log = log
        self._bar: Live | None = None

    def began(self, first_step: int, last_step: int) -> None:
        if self._words != "quiet":
            self._bar = progress_bar("Train", first_step, last_step, self._look)

    def trained(self, log: TrainingLog) -> None:
        seconds_per_step = self._batch_size / log.global_rate
        progress = TrainProgress(
            step=log.step,
            loss=log.losses[-1][1],
            rate=log.rate,
            global_rate=log.global_rate,
            loop_remaining_s=log.steps_left_in_stage * seconds_per_step,
            remaining_s=log.steps_left * seconds_per_step,
            emulated_rate=log.emulated_rate or None,
            machine=self._machine,
            device=self._device,
        )
        self._say(progress)

    def evaluated(self, log: EvaluationLog) -> None:
        progress = EvalProgress(
            global_step=log.step,
            batch=log.batches,
            loss=log.loss,
            rate=log.rate,
            global_rate=log.rate,
            device=self._device,
            metrics=log.metrics,
        )
        named = [f" - {name} = {value:.5f}" for name, value in log.metrics.items()]
        title = ["Evaluation metrics:"] if named else []
        self._say(progress, [f"Avg Eval Loss: {log.loss:.5f}", *title, *named])

    def summarized(self, step: int, numbers: Mapping[str, float]) -> None:
        """Do nothing: too many numbers for a terminal."""

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _say(self, progress: TrainProgress | EvalProgress, more: Sequence[str] = ()) -> None:
        """Append lines to run.log, and print them above the progress bar in the words asked for."""
        lines = [str(progress), *more]
        for line in lines:
            self._log(line)
        shown = {"vendor": lines, "plain": [progress.plain], "quiet": []}[self._words]
        for line in shown:
            print(line, flush=True)
