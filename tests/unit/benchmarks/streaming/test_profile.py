"""The profile of a step: every cause has its time, and none more than the whole needs."""

from __future__ import annotations

import pytest

from benchmarks.streaming.profile import profile
from benchmarks.streaming.workload import Workload


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_profile_has_the_time_of_each_cause_for_both_kernels() -> None:
    """A C++ compiler takes seconds for each kernel."""
    found = profile(Workload(64, 1, 128, 16, 2, "fp32", 1), repeats=2)
    assert list(found) == ["eager", "compiled"]
    for causes in found.values():
        assert {"products", "attention", "whole"} <= set(causes)
        assert min(causes.values()) > 0
