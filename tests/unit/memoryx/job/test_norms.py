"""The norms that a program asks a weight server for."""

from __future__ import annotations

from dataclasses import replace

import torch

from memoryx.job.norms import NormNotes
from tests.support.programs.small_programs import program
from waferstream.core.program.program import NormInput, NormResults, ProgramKind
from waferstream.core.roles.role import Job, Report

WEIGHT = NormInput("weight", "first.weight")
FROZEN = NormInput("weight", "last.frozen")
SQUARE = NormInput("gradient", "first.bias", is_squared=True)
PROGRAM = replace(program(), norms=NormResults((WEIGHT, FROZEN, SQUARE), (0,)))
MASTERS = {"first.weight": torch.full((4, 4), 0.5), "last.frozen": torch.ones(3)}


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
