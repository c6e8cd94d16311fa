"""Watcher: norms and findings in the report of a server."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from memoryx.job.watcher import NormNotes, Watcher
from tests.support.programs.small_programs import PARAMETERS, program
from waferstream.core.messages.watch import NOTHING, Finding, Watch
from waferstream.core.program.program import NormInput, NormResults, ProgramKind
from waferstream.core.roles.role import Job, Report

NAME = "last.weight"
LAST_STEP = 3

WEIGHT = NormInput("weight", "first.weight")
FROZEN = NormInput("weight", "last.frozen")
SQUARE = NormInput("gradient", "first.bias", is_squared=True)
PROGRAM = replace(program(), norms=NormResults((WEIGHT, FROZEN, SQUARE), (0,)))
MASTERS = {"first.weight": torch.full((4, 4), 0.5), "last.frozen": torch.ones(3)}


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


def test_every_step_has_the_norms_that_are_asked_for() -> None:
    report = Report("wgt-0")
    notes = NormNotes(PROGRAM, Job(ProgramKind.TRAIN, 3, 4), report)
    notes.begin(MASTERS)
    assert report.step_norms == {step: {FROZEN: float(torch.ones(3).norm())} for step in (3, 4)}
    notes.of_batch(3, {"first.bias": torch.tensor([3.0, 4.0]), "last.weight": torch.ones(2)})
    notes.before_update(3, MASTERS, ["first.weight"])
    assert report.step_norms[3] == {**report.step_norms[4], SQUARE: 25.0, WEIGHT: 2.0}


def test_an_evaluation_changes_no_weight() -> None:
    report = Report("wgt-0")
    NormNotes(PROGRAM, Job(ProgramKind.EVAL, 1, 1), report).begin(MASTERS)
    assert set(report.step_norms[1]) == {WEIGHT, FROZEN}
