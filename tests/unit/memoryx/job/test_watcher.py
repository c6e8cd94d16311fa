"""Watcher: norms and findings in the report of a server."""

from __future__ import annotations

import math

import pytest
import torch

from memoryx.job.watcher import Watcher
from tests.support.programs.small_programs import PARAMETERS, program
from waferstream.core.messages.watch import NOTHING, Finding, Watch
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.role import Job, Report

NAME = "last.weight"
LAST_STEP = 3


def tensors(value: float = 1.0) -> dict[str, torch.Tensor]:
    """Return one tensor for each parameter; the first element of ``NAME`` is ``value``."""
    made = {spec.name: torch.ones(spec.shape) for spec in PARAMETERS}
    made[NAME].view(-1)[0] = value
    return made


def watcher(watch: Watch) -> tuple[Watcher, Report]:
    report = Report("wgt-1")
    return Watcher(program(), Job(ProgramKind.TRAIN, 2, LAST_STEP, watch=watch), report), report


def test_norms_are_those_before_the_last_update() -> None:
    watching, report = watcher(Watch(norms=True))
    gradient = {NAME: torch.full((2, 4), 2.0)}
    watching.before_update(LAST_STEP - 1, tensors(), gradient)
    assert report.tensor_norms == {}
    watching.before_update(LAST_STEP, tensors(), gradient)
    assert report.tensor_norms.keys() == {NAME}
    assert report.tensor_norms[NAME] == pytest.approx((math.sqrt(8.0), math.sqrt(32.0)))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_finding_names_step_origin_and_parameter(value: float) -> None:
    watching, report = watcher(Watch(finite_to=LAST_STEP))
    watching.begin(tensors(value))
    watching.before_update(2, tensors(), tensors(value))
    watching.after_update(3, tensors(value), [NAME])
    assert report.findings == [
        Finding(step, origin, -1, 2, "last", NAME, "wgt-1")
        for step, origin in ((2, 0), (2, 2), (3, 3))
    ]


@pytest.mark.parametrize("watch", [NOTHING, Watch(norms=True), Watch(finite_to=1)])
def test_steps_that_are_not_watched_are_not_examined(watch: Watch) -> None:
    watching, report = watcher(watch)
    watching.begin(tensors(math.nan))
    watching.after_update(2, tensors(math.nan), [NAME])
    assert report.findings == []
