"""The number of steps of a loop, and which of them a schedule names."""

from __future__ import annotations

from collections.abc import Sized

from cstorch.utils.data.cadence import Cadence
from cstorch.utils.data.utils import Schedule
from waferstream.core.errors import ConfigError

MAX_STEPS = 2**31 - 1


def checked_steps(num_steps: int | None, loader: Sized) -> int:
    """Return the steps of a loop, by default those of an epoch of a loader.

    Raises:
        ConfigError: The number is out of range or no whole number, or the loader has no length.
    """
    if num_steps is None:
        try:
            num_steps = len(loader)
        except TypeError as error:
            raise ConfigError(
                "the number of steps must be given",
                code="num-steps-unknown",
                rule="num_steps, or a loader with a length",
            ) from error
    if isinstance(num_steps, bool) or not isinstance(num_steps, int):
        raise ConfigError(
            "num_steps must be a whole number",
            code="num-steps-not-whole",
            value=f"{num_steps!r}",
        )
    if not 0 < num_steps <= MAX_STEPS:
        raise ConfigError(
            "num_steps must be between 1 and 2**31 - 1",
            code="num-steps-out-of-range",
            value=num_steps,
        )
    return num_steps


def steps_of(asked: Cadence | Schedule | None, num_steps: int) -> Cadence | None:
    """Return the steps of a schedule, counted from 1; anything else as it is.

    Args:
        asked: What a user has given as an interval.
        num_steps: Steps of the loop.
    """
    if not isinstance(asked, Schedule):
        return asked
    return frozenset(step + 1 for step in range(num_steps) if asked.match(step))
