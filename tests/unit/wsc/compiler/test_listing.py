"""The schedule as text: a line per action, in order, with what a reader looks for."""

from itertools import pairwise

import pytest

from tests.support.local_machine import Regression, compile_model, random_batches
from wsc.compiler.listing import describe, schedule_listing
from wsc.core.actions import (
    DropActivation,
    ReduceGradient,
    RunKernel,
    StashActivation,
    StreamWeight,
    UpdateParameter,
    node_actions,
    server_actions,
)
from wsc.core.program import plan_streams


@pytest.fixture(scope="module")
def program():
    return compile_model(Regression(width=64), random_batches(1, 6, 64)[0], 3).program


@pytest.mark.parametrize("num_servers", [1, 2])
def test_every_action_has_its_line(program, num_servers):
    """The headline, the walk of a node, and the round of every server."""
    plan = plan_streams(program, num_servers)
    lines = schedule_listing(program, num_servers).splitlines()
    servers = [server_actions(plan, server, True) for server in range(num_servers)]
    expected = [len(node_actions(program, plan)), *(len(actions) for actions in servers)]
    heads = [index for index, line in enumerate(lines) if line.endswith(":")]
    bounds = [*heads, len(lines)]
    assert [stop - start - 1 for start, stop in pairwise(bounds)] == expected


def test_the_headline_describes_the_program(program):
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


def test_the_same_program_has_the_same_listing(program):
    """So that two artifacts can be compared with diff."""
    assert schedule_listing(program) == schedule_listing(program)


@pytest.mark.parametrize(
    ("action", "parts"),
    [
        (StreamWeight(0), ["layers.0 forward", "2 tensors", "16.2 KiB", "server 0"]),
        (RunKernel(0), ["layers.0 forward", "ops", "GFLOP"]),
        (StashActivation(0, 2048), ["values", "2.0 KiB"]),
        (DropActivation(0, ("a", "b")), ["a, b"]),
        (ReduceGradient(0), ["backward", "tensors"]),
        (UpdateParameter(0), ["backward", "tensors"]),
    ],
)
def test_an_action_in_words(action, parts, program):
    """The verb is the class, and what it acts on follows in words and sizes."""
    text = describe(action, program, plan_streams(program, 1))
    assert text.startswith(type(action).__name__)
    assert all(part in text for part in parts), text
