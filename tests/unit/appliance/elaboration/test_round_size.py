"""The size of a round: a node's whole share where it fits, otherwise a power of two."""

from __future__ import annotations

from dataclasses import replace

import pytest

from appliance.elaboration.round_size import activation_bytes, micro_batches_of_round
from appliance.placement.host_memory import free_bytes
from tests.support.roles.local_machine import Regression, compile_model, random_batches
from waferstream.core.program.program import Program

PLENTY = 1 << 40


@pytest.fixture(scope="module")
def captured() -> Program:
    """Return a step of 16 micro-batches."""
    return compile_model(Regression(), random_batches(1, rows=16)[0], 16).program


@pytest.mark.parametrize(
    ("num_csx", "lanes", "count"), [(1, 2, 16), (2, 1, 8), (3, 1, 6), (16, 1, 1), (5, 4, 4)]
)
def test_round_is_the_share_of_a_node_that_fits(
    num_csx: int, lanes: int, count: int, captured: Program
) -> None:
    assert micro_batches_of_round(captured, num_csx, lanes, PLENTY) == count


@pytest.mark.parametrize(("num_csx", "lanes", "count"), [(1, 1, 1), (1, 3, 3), (16, 4, 1)])
def test_round_has_a_micro_batch_per_lane_at_least(
    num_csx: int, lanes: int, count: int, captured: Program
) -> None:
    assert micro_batches_of_round(captured, num_csx, lanes, 0) == count


@pytest.mark.parametrize("lanes", [1, 3])
def test_round_grows_by_doubling_with_memory(lanes: int, captured: Program) -> None:
    """Sizes between powers of two would cut subtrees."""
    found = [micro_batches_of_round(captured, 1, lanes, budget) for budget in range(0, 9000, 16)]
    assert found == sorted(found)
    expected = [lanes * 2**k for k in range(5) if lanes * 2**k < 16]
    assert sorted(set(found)) == [*expected, 16]


def test_round_of_a_node_shares_the_host_with_the_others(captured: Program) -> None:
    """Twice the nodes need twice the memory for rounds of the same size."""
    alone = min(b for b in range(9000) if micro_batches_of_round(captured, 1, 1, b) == 4)
    assert micro_batches_of_round(captured, 2, 1, 2 * alone) == 4
    assert micro_batches_of_round(captured, 2, 1, 2 * alone - 1) == 2


def test_cbfloat16_takes_twice_its_planned_bytes(captured: Program) -> None:
    """Kernels hold it in fp32."""
    held = replace(captured, stream_dtype="cbfloat16")
    for budget in range(0, 9000, 100):
        wide = micro_batches_of_round(captured, 1, 1, budget)
        assert micro_batches_of_round(held, 1, 1, budget) <= wide
    assert micro_batches_of_round(held, 1, 1, 2000) < micro_batches_of_round(captured, 1, 1, 2000)


def test_activation_bytes_are_as_requested() -> None:
    assert activation_bytes(123, 8) == 123


def test_auto_activation_bytes_leave_the_weights_their_memory() -> None:
    """A state larger than the host leaves nothing."""
    assert 0 < activation_bytes("auto", 8) < free_bytes()
    assert activation_bytes("auto", 1 << 50) == 0
