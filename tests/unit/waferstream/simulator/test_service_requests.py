"""Who asks what and when."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.core.units import PS_PER_S
from waferstream.simulator.service_requests import Lengths, of_users, poisson, recorded


def test_more_users_ask_the_same_and_more() -> None:
    """So that curves over users compare like with like."""
    few, many = (of_users(users, 2, 1000, Lengths(), seed=3) for users in (4, 9))
    assert many[:4] == few
    assert all(one.follows is not None and one.follows.follows is None for one in many)
    assert all(0 <= one.arrival_ps < 1000 for one in many)


def test_poisson_requests_come_at_their_rate() -> None:
    """Within some per cent for a thousand."""
    found = poisson(50.0, 1000, Lengths(prompt=100, output=10), seed=1)
    assert found[-1].arrival_ps / PS_PER_S == pytest.approx(20, rel=0.15)
    assert all(50 <= one.prompt <= 150 and 5 <= one.output <= 15 for one in found)


def test_record_is_read(tmp_path: Path) -> None:
    """A request a line."""
    path = tmp_path / "requests.jsonl"
    path.write_text('{"arrival_s": 0.5, "prompt_tokens": 7, "completion_tokens": 3}\n')
    (one,) = recorded(path)
    assert (one.arrival_ps, one.prompt, one.output) == (PS_PER_S // 2, 7, 3)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("{", "request-line-malformed"),
        ("\xff", "request-line-malformed"),
        ('{"arrival_s": 1}', "missing-key"),
        ('{"arrival_s": 1, "prompt_tokens": 0, "completion_tokens": 1}', "out-of-range"),
        ('{"arrival_s": 1, "prompt_tokens": 1, "completion_tokens": 1, "x": 1}', "unknown-key"),
    ],
)
def test_wrong_lines_are_refused(tmp_path: Path, line: str, code: str) -> None:
    """The error names file and line."""
    path = tmp_path / "requests.jsonl"
    path.write_bytes(line.encode("latin-1") + b"\n")
    with raises(ConfigError, code) as refused:
        recorded(path)
    assert "line 1" in str(refused.value.where)


def test_missing_record_is_refused(tmp_path: Path) -> None:
    """As any file."""
    with raises(ConfigError, "file-not-readable"):
        recorded(tmp_path / "none.jsonl")
