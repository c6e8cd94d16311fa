"""The schedule as text: a line per action, in order, with what a reader looks for."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.support.roles.local_machine import Regression, compile_model, random_batches
from waferstream.compiler.listing import schedule_listing
from waferstream.core.program.program import Program
from waferstream.core.program.schedule import collected_by, schedule_of, streamed_by
from waferstream.core.program.stream_plan import plan_streams


@pytest.fixture(scope="module")
def program() -> Program:
    return compile_model(Regression(width=64), random_batches(1, 6, 64)[0], 3).program


@pytest.mark.parametrize("num_servers", [1, 2])
def test_listing_has_a_line_per_action(program: Program, num_servers: int) -> None:
    """The headline, the round of a node, and the round of every server."""
    steps = schedule_of(program, plan_streams(program, num_servers))
    lines = schedule_listing(program, num_servers).splitlines()
    node = sum(
        1 + 2 * len(s.weights) + bool(s.stashes) + bool(s.drops) + len(s.gradients) for s in steps
    )
    servers = [
        len(streamed_by(steps, server)) + 2 * len(collected_by(steps, server))
        for server in range(num_servers)
    ]
    heads = [index for index, line in enumerate(lines) if line.endswith(":")]
    bounds = [*heads, len(lines)]
    assert [stop - start - 1 for start, stop in pairwise(bounds)] == [node, *servers]


def test_listing_headline_describes_the_program(program: Program) -> None:
    """Digest, size, dtype and batch at a glance."""
    headline = schedule_listing(program).splitlines()[0]
    for part in (
        program.digest,
        "train step",
        "8,320 parameters",
        "float32",
        "3 micro-batches of 2",
    ):
        assert part in headline


def test_listing_is_deterministic(program: Program) -> None:
    """So that two artifacts can be compared with diff."""
    assert schedule_listing(program) == schedule_listing(program)


@pytest.mark.parametrize(
    ("verb", "parts"),
    [
        ("stream weights", ["layers.0 forward", "2 tensors", "16.2 KiB", "server 0"]),
        ("run kernel", ["layers.0 forward", "ops", "GFLOP"]),
        ("stash", ["1 values", "512 B"]),
        ("drop values", ["input_1"]),
        ("send gradients", ["backward", "tensors"]),
        ("update masters", ["backward", "tensors"]),
    ],
)
def test_listing_line_names_action_and_sizes(program: Program, verb: str, parts: list[str]) -> None:
    lines = [line for line in schedule_listing(program).splitlines() if line[2:].startswith(verb)]
    assert all(part in lines[0] for part in parts), lines
