"""Steps of a loop at which something is done: an interval, or a collection of steps."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection

from waferstream.core.errors import ConfigError

log = logging.getLogger("waferstream")

Cadence = int | Collection[int]
"""An interval of steps (0 is never), or a collection of steps of the loop, counted from 1."""


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
