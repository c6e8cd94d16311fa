"""Emulated times of steps with stated causes."""

from waferstream.machine.attribution import Attribution, StepTiming


def timing(start_ps: int, end_ps: int, **charges_ps: int) -> StepTiming:
    """Return a step of 8 samples whose time has the stated causes."""
    attribution = Attribution(**charges_ps)
    return StepTiming(1, start_ps, end_ps, 8, 1, attribution, attribution)
