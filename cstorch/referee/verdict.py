"""The comparison of a step of a run with that of a plain loop: equal, close or different.

*Equal* is bit for bit. What differs is *close* as long as rounding alone can explain it: the plain
loop runs again a few times with random rounding (``cstorch.referee.rounding``), and the farthest
that a tensor moves there, in the L2 norm, is what rounding does to it; never less than the rounding
of its values themselves. A run may differ from the plain loop by LIMIT times as much, since it
adds the same numbers in another order, over sums whose length random rounding of results does not
see. Anything beyond is *different*: other mathematics, not another order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, Literal

import torch

from cstorch.witness import StepValues
from waferstream.core.errors import CheckError

LIMIT = 16
"""How many times farther than by random rounding alone a value may be from the plain loop's."""

NUM_ROUNDED = 3
"""Plain loops with random rounding."""

Outcome = Literal["equal", "close", "different"]

LOSS = "loss"


@dataclass(frozen=True)
class Distance:
    """How far a value of a run is from that of the plain loop."""

    name: str
    relative: float
    """The norm of the difference in units of the value's norm."""

    times: float
    """The difference in units of what rounding alone does; 0 for the same bits."""

    @property
    def outcome(self) -> Outcome:
        """What the distance means."""
        if not self.times:
            return "equal"
        return "close" if self.times <= LIMIT else "different"


@dataclass(frozen=True)
class Verdict:
    """The outcome of one step, counted from 1."""

    step: int
    loss: float
    plain_loss: float
    distances: tuple[Distance, ...]

    @property
    def outcome(self) -> Outcome:
        """``different`` if one value is, ``equal`` if all are."""
        found = {distance.outcome for distance in self.distances}
        if "different" in found:
            return "different"
        return "close" if "close" in found else "equal"

    @property
    def farthest(self) -> Distance:
        """The value that is farthest from the plain loop's."""
        return max(self.distances, key=lambda distance: distance.times)

    @property
    def different(self) -> list[Distance]:
        """The values that differ, in the order of the model."""
        return [each for each in self.distances if each.outcome == "different"]

    def fields(self) -> dict[str, Any]:
        """Return the comparison as plain data, of the values the farthest and the different."""
        return {
            "step": self.step,
            "outcome": self.outcome,
            "loss": self.loss,
            "plain_loss": self.plain_loss,
            "farthest": asdict(self.farthest),
            "different": [each.name for each in self.different],
        }

    def __str__(self) -> str:
        loss, plain = f"loss {self.loss:.6g}", f"{self.plain_loss:.6g}"
        if self.outcome == "equal":
            values = f"{len(self.distances)} values"
            return f"step {self.step}: equal      {loss}, {values}, bit for bit"
        if not loss.endswith(f" {plain}"):
            loss += f" (plain {plain})"
        far = self.farthest
        count = f"{len(self.different)} of {len(self.distances)} values, " if self.different else ""
        return (
            f"step {self.step}: {self.outcome:10} {loss}, {count}farthest {far.name}: by "
            f"{far.relative:.1e} of its norm, {far.times:.2g} times what rounding alone does"
        )


def judge(
    step: int, found: StepValues, plain: StepValues, rounded: Sequence[StepValues]
) -> Verdict:
    """Compare the values of a step of a run with those of plain loops.

    Args:
        step: The step, counted from 1.
        found: The values of the run.
        plain: The values of the plain loop.
        rounded: Those of plain loops with random rounding.
    """
    values = _tensors(found)
    expected, moved = _tensors(plain), [_tensors(each) for each in rounded]
    distances = [
        _distance(name, values[name], value, [each[name] for each in moved])
        for name, value in expected.items()
        if name in values
    ]
    return Verdict(step, found.loss, plain.loss, tuple(distances))


def judge_all(
    found: Sequence[StepValues], values_of: Callable[[int | None], Sequence[StepValues]]
) -> tuple[Verdict, ...]:
    """Compare the first steps of a run with those of plain loops.

    Args:
        found: The values of the run, for each step.
        values_of: Runs a plain loop anew, with a seed of random rounding or without rounding at
            random; returns its values.

    Raises:
        CheckError: The plain loop does not repeat itself.
    """
    plain = values_of(None)
    require_repeatable(plain, values_of(None))
    rounded = [values_of(seed) for seed in range(NUM_ROUNDED)]
    return tuple(
        judge(step + 1, found[step], plain[step], [each[step] for each in rounded])
        for step in range(len(found))
    )


def first_different(verdicts: Sequence[Verdict]) -> Verdict | None:
    """Return the first step that is different, None if none is."""
    return next((each for each in verdicts if each.outcome == "different"), None)


def require_repeatable(once: Sequence[StepValues], again: Sequence[StepValues]) -> None:
    """Raise CheckError unless two equal plain loops have equal values, bit for bit."""
    for step, (one, other) in enumerate(zip(once, again, strict=True), start=1):
        if judge(step, other, one, ()).outcome != "equal":
            raise CheckError(
                "a plain PyTorch loop gives other values each time",
                code="check-not-repeatable",
                where=f"step {step}",
                rule="all that a step changes belongs to its model, optimizer and loss function",
                remedy="keep counters and generators in the model, not beside it",
            )


def _tensors(values: StepValues) -> Mapping[str, torch.Tensor]:
    """Return the loss and the state as tensors by name."""
    return {LOSS: torch.tensor(values.loss), **values.state}


def _distance(
    name: str, found: torch.Tensor, plain: torch.Tensor, moved: Sequence[torch.Tensor]
) -> Distance:
    """Return how far a value is from the plain loop's, in the type that the run gives it."""
    plain, *moved = (each.to(found.dtype) for each in (plain, *moved))
    if torch.equal(found, plain):
        return Distance(name, 0.0, 0.0)
    norm = _norm(plain, torch.zeros_like(plain))
    by = _norm(found, plain)
    by_rounding = [distance for each in moved if isfinite(distance := _norm(each, plain))]
    rounding = max([norm * _last_place(found), *by_rounding])
    times = by / rounding if rounding else float("inf")
    return Distance(name, by / norm if norm else float("inf"), times)


def _last_place(value: torch.Tensor) -> float:
    """Return half a unit in the last place of a float, relative to it; 0 for integers."""
    return torch.finfo(value.dtype).eps / 2 if value.is_floating_point() else 0.0


def _norm(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the L2 norm of a difference; 0 where both are not finite alike."""
    difference = (one.double() - other.double()).masked_fill_(_are_alike(one, other), 0.0)
    norm = float(difference.norm())
    return norm if norm == norm else float("inf")  # noqa: PLR0124  (NaN)


def _are_alike(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return where two tensors hold the same, or both NaN."""
    return (one == other) | (one.isnan() & other.isnan())
