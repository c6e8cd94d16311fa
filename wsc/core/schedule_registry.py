"""Schedules by the name that params.yaml carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wsc.core.config import validate
from wsc.core.errors import ConfigError, did_you_mean
from wsc.core.hyper_schedules import (
    ConstantLR,
    CosineAnnealingLR,
    CosineDecayLR,
    ExponentialLR,
    HyperSchedule,
    InverseExponentialTimeDecayLR,
    InverseSquareRootDecayLR,
    LinearLR,
    MultiStepLR,
    PiecewiseConstantLR,
    PolynomialLR,
    SequentialLR,
    StepLR,
)

SCHEDULES: Mapping[str, type[HyperSchedule]] = {
    kind.__name__: kind
    for kind in (
        ConstantLR,
        LinearLR,
        PolynomialLR,
        ExponentialLR,
        InverseExponentialTimeDecayLR,
        InverseSquareRootDecayLR,
        CosineDecayLR,
        CosineAnnealingLR,
        StepLR,
        MultiStepLR,
        PiecewiseConstantLR,
        SequentialLR,
    )
}


def build_schedule(class_name: str, args: Mapping[str, Any], where: str) -> HyperSchedule:
    """A schedule from plain data, as it stands in params.yaml.

    The ``schedulers`` of a SequentialLR are schedules or ``{class name: args}`` mappings. ``where``
    names the place in the configuration. ConfigError for an unknown class or a wrong argument.
    """
    kind = SCHEDULES.get(class_name)
    if kind is None:
        raise ConfigError(
            f"unknown schedule {class_name!r}",
            where=where,
            rule=f"known schedules: {', '.join(SCHEDULES)}",
            remedy=did_you_mean(class_name, SCHEDULES),
        )
    if kind is SequentialLR and isinstance(args.get("schedulers"), list | tuple):
        parts = [
            _build_part(part, f"{where}.schedulers[{index}]")
            for index, part in enumerate(args["schedulers"])
        ]
        args = {**args, "schedulers": parts}
    return validate(kind, args, where)


def _build_part(part: object, where: str) -> HyperSchedule:
    if isinstance(part, HyperSchedule):
        return part
    if not isinstance(part, Mapping) or len(part) != 1:
        raise ConfigError(
            "not a schedule", where=where, value=part, rule="a mapping {class name: arguments}"
        )
    ((class_name, args),) = part.items()
    return build_schedule(str(class_name), args or {}, f"{where}.{class_name}")
