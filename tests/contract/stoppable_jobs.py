"""A job of the tiny cluster that a test stops after any message, and what it computes undisturbed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch

from tests.contract.small_cluster import office, weights
from tests.support.roles.sorting_office import SortingOffice
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.role import Job, Value

JOB = Job(ProgramKind.TRAIN, 1, 4, attempt=1)
Results = dict[tuple[int, int], tuple[Value, ...]]


class StoppedError(Exception):
    """The job was stopped by the test."""


class StoppableOffice(SortingOffice):
    """Stops after a number of messages."""

    messages_left = 10**9

    def after(self, role: str) -> None:
        self.messages_left -= 1
        if self.messages_left == 0:
            raise StoppedError


@cache
def expected() -> tuple[dict[str, torch.Tensor], Results, dict[int, float], int]:
    """Return weights, results, norms and number of messages of the job that nobody protects."""
    roles = office()
    reports = roles.run(replace(JOB, attempt=0))
    results = {key: v for report in reports for key, v in report.results.items()}
    norms = {key: v for report in reports for key, v in report.norms.items()}
    return weights(roles), results, norms, len(roles.delivered)
