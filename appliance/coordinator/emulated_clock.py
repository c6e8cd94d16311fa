"""The emulated clock of a running cluster: its timing model, with the sparsity of each step."""

from __future__ import annotations

from appliance.elaboration.elaborate import costed_program
from memoryx.sparsity.step_sparsity import sparsity_by_optimizer
from waferstream.core.optimizer.spec import OptimizerSpec
from waferstream.core.program.program import Mode, Program
from waferstream.core.roles.installation import Installation
from waferstream.machine.attribution import StepTiming
from waferstream.machine.densities import StepSparsity
from waferstream.machine.record import Record
from waferstream.simulator.cluster_timing import ClusterTiming


class EmulatedClock:
    """Emulated time of one cluster; a copy goes on from the same moment."""

    def __init__(self, timing: ClusterTiming) -> None:
        self._timing = timing
        self._last_update: int | None = None  # None before the first training step

    @property
    def record(self) -> Record | None:
        """All activities in emulated time, where they are recorded."""
        return self._timing.record

    def load(self, installation: Installation) -> None:
        """Load the program of an installation."""
        self._timing.load_program(costed_program(installation, self._timing.machine))

    def step(
        self, mode: Mode, step: int, training: Installation | None, skipped: int
    ) -> StepTiming:
        """Advance by one step; return how long it takes and where the time goes.

        Args:
            mode: The program of the step.
            step: The number of the step.
            training: The installation that trains; it says which weights are sparse.
            skipped: Training steps before this one whose update was skipped.
        """
        if training is not None and training.optimizer is not None and training.optimizer.sparsity:
            found = self._sparsity(mode, step - skipped, training.program, training.optimizer)
            self._timing.set_sparsity(mode, found)
        return self._timing.step(mode, step)

    def _sparsity(
        self, mode: Mode, applied_step: int, program: Program, optimizer: OptimizerSpec
    ) -> StepSparsity:
        """Return the densities that a step finds, and the changes of masks at its end.

        Evaluation changes no mask, and finds what the last training step has left.
        """
        if mode == "train":
            self._last_update = applied_step + optimizer.earlier_updates
            return sparsity_by_optimizer(optimizer, program.parameter, self._last_update)
        last = max(0, optimizer.earlier_updates) if self._last_update is None else self._last_update
        return StepSparsity(sparsity_by_optimizer(optimizer, program.parameter, last + 1).densities)
