"""How often something happens in a loop: every so many steps, or at the steps that are named."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection

from wsc.core.errors import ConfigError

log = logging.getLogger("waferstream")

Cadence = int | Collection[int]
"""Every so many steps (0 is never), or the very steps of the loop, counted from 1."""


def checked_cadence(name: str, asked: Cadence | None, least: int) -> Cadence:
    """What was asked for, or ``least`` if nothing was; ConfigError if it is below ``least``."""
    if asked is None:
        return least
    if isinstance(asked, int) and asked < least:
        raise ConfigError(f"{name} is out of range", value=asked, rule=f"{least} or more")
    return asked


def is_due(every: Cadence, step: int) -> bool:
    """Whether it happens at this step."""
    if isinstance(every, int):
        return every > 0 and step % every == 0
    return step in every


def meeting(activation: Cadence, checkpoint: Cadence) -> Cadence:
    """How often values come back, so that they do at every checkpoint.

    Intervals are reduced to their greatest common divisor, with a warning; steps that are named
    are left as they are.
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
