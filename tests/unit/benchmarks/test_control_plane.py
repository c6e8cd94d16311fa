"""What a role costs in the control plane does not grow with the number of systems."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.control_plane import Point, exponents, measure


def test_messages_per_role_are_constant(tmp_path: Path) -> None:
    """In a process of its own: what other tests leave would be counted among descriptors."""
    file = tmp_path / "points.json"
    words = ["--systems", "8", "32", "--json", str(file)]
    command = [sys.executable, "-m", "benchmarks.control_plane", *words]
    subprocess.run(command, check=True, timeout=100)
    few, many = (Point(**row) for row in json.loads(file.read_text())["points"])
    assert _messages_by_edge(few) == _messages_by_edge(many)
    assert few.threads == many.threads == 0
    assert few.descriptors == many.descriptors == 0


def test_a_protected_step_adds_one_message_for_each_system_and_server() -> None:
    plain, protected = (measure(8, 1, 1, is_protected=each) for each in (False, True))
    added = protected.messages.pop("StepDone")
    assert protected.messages == plain.messages
    assert added in range(4, 9)  # none follows the last of the two steps


@pytest.mark.nightly
def test_512_systems_cost_what_64_do_by_role() -> None:
    few, many = (measure(num_csx, servers=2, workers=1) for num_csx in (64, 512))
    assert _messages_by_edge(few) == _messages_by_edge(many)
    (growth,) = exponents([few, many])
    assert growth["messages"] < 1.05
    assert many.resident_bytes / many.num_roles < 2 * 2**20


def _messages_by_edge(point: Point) -> dict[str, float]:
    """Return the messages of a step by kind, over the links that carry that kind."""
    of_tree = point.num_roles - 3  # a system or a switch has one link to what is above it
    return {
        kind: count / (point.num_csx if kind.startswith("Batch") else of_tree)
        for kind, count in point.messages.items()
    }
