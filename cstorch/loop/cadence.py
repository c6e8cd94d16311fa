"""How many steps a loop has, and at which of them something is done."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Sized

from waferstream.core.errors import ConfigError

log = logging.getLogger("waferstream")

MAX_STEPS = 2**31 - 1

Cadence = int | Collection[int]
"""An interval of steps (0 is never), or a collection of steps of the loop, counted from 1."""


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


def checked_cadence(name: str, asked: Cadence | None, least: int) -> Cadence:
    """Return the requested cadence, or ``least`` for None.

    Raises:
        ConfigError: It is no number of steps and no collection of steps, or it is below ``least``.
    """
    if asked is None:
        return least
    if isinstance(asked, bool | str) or not isinstance(asked, int | Collection):
        raise ConfigError(
            f"{name} must be an interval in steps, or a collection of steps",
            code="interval-not-steps",
            where=name,
            value=asked,
        )
    if isinstance(asked, int) and asked < least:
        raise ConfigError(
            f"{name} must be at least {least}",
            code="interval-out-of-range",
            where=name,
            value=asked,
        )
    return asked


def is_due(every: Cadence, step: int) -> bool:
    """Return whether a cadence includes a step."""
    if isinstance(every, int):
        return every > 0 and step % every == 0
    return step in every


def meeting(activation: Cadence, checkpoint: Cadence) -> Cadence:
    """Return the activation cadence, reduced so that values come back at every checkpoint.

    Intervals are reduced to their greatest common divisor, with a warning; collections of steps
    stay unchanged.
    """
    if not (isinstance(activation, int) and isinstance(checkpoint, int) and checkpoint):
        return activation
    reduced = math.gcd(activation, checkpoint)
    if reduced != activation:
        log.warning(
            "activation_steps is reduced from %d to %d to meet checkpoint steps",
            activation,
            reduced,
        )
    return reduced
