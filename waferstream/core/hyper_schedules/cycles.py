"""Schedules that rise and fall: cosines with restarts, triangles, one cycle."""

from __future__ import annotations

from math import cos, pi
from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from waferstream.core.hyper_schedules.base import HyperSchedule, between, register


@register
class CosineAnnealingWarmRestarts(HyperSchedule):
    """eta_min + (initial - eta_min) (1 + cos(pi t_i / T_i)) / 2, restarted after T_i steps.

    T_i is T_0 at first, and ``T_mult`` times longer after each restart; t_i is the number of steps
    since the last one (Loshchilov and Hutter 2017, arXiv:1608.03983, equation 5).
    """

    initial_learning_rate: NonNegativeFloat
    T_0: PositiveInt
    T_mult: PositiveInt = 1
    eta_min: NonNegativeFloat = 0.0

    def at(self, step: int) -> float:
        done, length = self._current(step)
        left = (1.0 + cos(pi * done / length)) / 2.0
        return between(self.initial_learning_rate, self.eta_min, left)

    def _current(self, step: int) -> tuple[int, int]:
        """Return the steps since the last restart, and the length of the current period."""
        if self.T_mult == 1:
            return step % self.T_0, self.T_0
        done, length = step, self.T_0
        while done >= length:
            done -= length
            length *= self.T_mult
        return done, length


@register
class CyclicLR(HyperSchedule):
    """A triangle from base_lr to max_lr and back, again and again (Smith 2015, arXiv:1506.01186).

    The height of the triangle is constant in mode ``triangular``, halves after every cycle in mode
    ``triangular2``, and is multiplied by gamma ^ t in mode ``exp_range``. ``scale_mode`` follows
    from the mode, as in the vendor's class, which takes and ignores it.
    """

    base_lr: NonNegativeFloat
    max_lr: NonNegativeFloat
    step_size_up: PositiveInt = 2000
    step_size_down: PositiveInt | None = None
    mode: Literal["triangular", "triangular2", "exp_range"] = "triangular"
    gamma: NonNegativeFloat = 1.0
    scale_mode: Literal["cycle", "iterations"] = "cycle"

    def at(self, step: int) -> float:
        up, down = self.step_size_up, self.step_size_down or self.step_size_up
        cycle, done = divmod(step, up + down)
        height = done / up if done <= up else (up + down - done) / down
        scale = {"triangular": 1.0, "triangular2": 0.5**cycle, "exp_range": self.gamma**step}
        return float(self.base_lr + (self.max_lr - self.base_lr) * height * scale[self.mode])


@register
class OneCycleLR(HyperSchedule):
    """From initial to max_lr, then far below (Smith and Topin 2018, arXiv:1708.07120).

    The rise takes the share ``pct_start`` of ``total_steps``. What follows falls to
    initial / final_div_factor in one go; with ``three_phase`` it mirrors the rise first. The last
    value stays.
    """

    initial_learning_rate: NonNegativeFloat
    max_lr: NonNegativeFloat
    total_steps: PositiveInt = 1000
    pct_start: float = Field(default=0.3, ge=0, le=1)
    final_div_factor: PositiveFloat = 1e4
    three_phase: bool = False
    anneal_strategy: Literal["cos", "linear"] = "cos"

    def at(self, step: int) -> float:
        begin = 0.0
        for end, start_value, end_value in self._phases():
            if step <= end:
                share = (step - begin) / (end - begin) if end > begin else 1.0
                return self._annealed(start_value, end_value, share)
            begin = end
        return end_value

    def _phases(self) -> list[tuple[float, float, float]]:
        """Return the last step of each phase, and its first and last value."""
        initial, largest = self.initial_learning_rate, self.max_lr
        smallest, last = initial / self.final_div_factor, self.total_steps - 1.0
        top = self.pct_start * self.total_steps - 1.0
        if not self.three_phase:
            return [(top, initial, largest), (last, largest, smallest)]
        back = 2.0 * self.pct_start * self.total_steps - 2.0
        return [(top, initial, largest), (back, largest, initial), (last, initial, smallest)]

    def _annealed(self, start: float, end: float, share: float) -> float:
        left = (1.0 + cos(pi * share)) / 2.0 if self.anneal_strategy == "cos" else 1.0 - share
        return between(start, end, left)
