"""Arms by name; names and workloads that cannot run are refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from benchmarks.streaming.arms import openers
from benchmarks.streaming.workload import Workload
from tests.support.errors import raises
from wsc.core.errors import ConfigError

WORKLOAD = Workload(64, 1, 64, 8, batch_size=8, precision="fp32", cores=2)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("gpu", "unknown-arm"),
        ("csx0", "unknown-arm"),
        ("csx9", "more-systems-than-micro-batches"),
        ("ddp3", "ranks-not-divisible"),
    ],
)
def test_openers_refuse_arms_that_cannot_run(tmp_path: Path, name: str, code: str) -> None:
    """8 micro-batches, 2 cores."""
    with raises(ConfigError, code):
        openers(name, WORKLOAD, tmp_path)


def test_openers_of_ranks_share_a_meeting_point(tmp_path: Path) -> None:
    """Every rank of ddp2 gets its own number and the same meeting point."""
    ranks = []
    for opener in openers("ddp2", WORKLOAD, tmp_path):
        assert isinstance(opener, partial)
        ranks.append(opener.args[1:])
    assert ranks == [(0, 2, tmp_path / "meeting_point"), (1, 2, tmp_path / "meeting_point")]
