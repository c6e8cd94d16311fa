"""Collectives: exact sums, and cycles as published or as derived from their structure."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from csnode.fabric.collectives.programs import (
    all_reduce,
    all_reduce_2d,
    broadcast,
    broadcast_2d,
    reduce,
    reduce_2d,
    ring_all_reduce,
    snake_reduce,
)
from csnode.fabric.collectives.trees import Tree, auto_generated, binomial, chain, star, two_phase
from csnode.fabric.dtypes import Array, Dtype, decode, encode
from csnode.fabric.program import Program
from csnode.fabric.region import Fabric
from csnode.fabric.simulator.execution import Outcome, run
from tests.support.errors import raises
from tests.support.timing.fabric import whole_numbers
from waferstream.core.errors import ApplianceCompilationError
from waferstream.machine.hardware.fabric import WSE2, WSE3, WSE3_SIMULATOR, FabricSpec

START = WSE2.program_start_cycles


SETUP = WSE2.vector_setup_cycles


MESSAGE = 2 * WSE2.ramp_cycles + 1


TREES = {"chain": chain, "star": star, "binomial": binomial, "two-phase": two_phase}


def run_on(fabric: Fabric, program: Program, length: int) -> tuple[Outcome, Array, Array]:
    data = whole_numbers(fabric, length)
    outcome = run(program, {"x": data})
    return outcome, outcome.read("x"), data


@st.composite
def pre_order_trees(draw: st.DrawFn) -> Tree:
    """Draw any tree: a new position hangs below one on the path from the root to the last one."""
    parents = [-1]
    for position in range(1, draw(st.integers(2, 12))):
        ancestors = [position - 1]
        while parents[ancestors[-1]] >= 0:
            ancestors.append(parents[ancestors[-1]])
        parents.append(draw(st.sampled_from(ancestors)))
    return Tree(tuple(parents))


def by_recurrence(tree: Tree, words: int) -> float:
    """Return the cycles that the docstring of ``collectives.reduce`` derives from the structure."""
    starts = [0.0] * tree.num_pes
    for position in reversed(range(tree.num_pes)):
        entered = None
        for child in tree.children[position]:
            natural = starts[child] + (child - position) + MESSAGE
            entered = natural if entered is None else max(natural, entered + words + SETUP)
        starts[position] = entered or 0.0
    return SETUP + starts[0] + words


def test_reduce_chain_takes_the_published_cycles() -> None:
    """K0001, K0007, K0014: P = 512, fp32, and 1, 64, 8192 words at one cycle per further word."""
    one_word = run(reduce(Fabric(1, 512), chain(512), 1), {}).cycles + START
    assert [one_word + words - 1 for words in (1, 64, 8192)] == [3128, 3191, 11319]


def test_reduce_two_phase_takes_the_published_cycles() -> None:
    """K0016: P = 512 in groups of 32, one word; each op loads its descriptors."""
    descriptors = WSE2.descriptor_load_cycles
    restart = (descriptors, descriptors)
    program = reduce(Fabric(1, 512), two_phase(512, 32), 1, restart_cycles=restart)
    assert run(program, {}).cycles + START == 819


@settings(max_examples=15, deadline=None)
@given(num_pes=st.integers(2, 40), words=st.integers(1, 40))
def test_reduce_chain_costs_a_message_per_pe(num_pes: int, words: int) -> None:
    """The cost is B + (2 T_R + 2)(P - 1) after the set-up, for any line and length."""
    outcome = run(reduce(Fabric(1, num_pes), chain(num_pes), words), {})
    assert outcome.cycles == SETUP + words + (MESSAGE + 1) * (num_pes - 1)
    assert outcome.sent == outcome.received == outcome.hops == words * (num_pes - 1)


@settings(max_examples=15, deadline=None)
@given(num_pes=st.integers(2, 40), words=st.integers(1, 40))
def test_broadcast_costs_distance_and_words(num_pes: int, words: int) -> None:
    """The cost is B + P + 2 T_R after the set-up."""
    outcome = run(broadcast(Fabric(1, num_pes), words), {})
    assert outcome.cycles == SETUP + words + num_pes + 2 * WSE2.ramp_cycles


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(1, 9), columns=st.integers(1, 9), words=st.integers(1, 20))
def test_broadcast_2d_takes_the_time_of_the_farthest_pe(
    rows: int, columns: int, words: int
) -> None:
    """The cost is B + M + N - 2 + 2 T_R + 1 after the set-up; every PE has the root's words."""
    fabric = Fabric(rows, columns)
    outcome, values, data = run_on(fabric, broadcast_2d(fabric, words), words)
    np.testing.assert_array_equal(values, np.broadcast_to(data[:1, :1], values.shape))
    if rows * columns > 1:
        assert outcome.cycles == SETUP + words + rows + columns - 2 + MESSAGE


@settings(max_examples=15, deadline=None)
@given(groups=st.integers(2, 6), group=st.integers(2, 8), words=st.integers(1, 60))
def test_reduce_two_phase_waits_for_words_or_distance(groups: int, group: int, words: int) -> None:
    """A leader's second stream waits for its first one, or for the way from the next leader.

    The control wavelets that open the way may cost a few cycles in small groups.
    """
    outcome = run(reduce(Fabric(1, groups * group), two_phase(groups * group, group), words), {})
    leader_hop = MESSAGE + group
    within = (MESSAGE + 1) * (group - 1)
    second = max(leader_hop, words + SETUP)
    expected = SETUP + within + second + leader_hop * (groups - 2) + words
    assert expected <= outcome.cycles <= expected + 6


@settings(max_examples=15, deadline=None)
@given(num_pes=st.integers(2, 33), words=st.integers(1, 20), name=st.sampled_from(sorted(TREES)))
def test_reduce_adds_every_word_once(num_pes: int, words: int, name: str) -> None:
    """Sums of whole numbers are exact; every wavelet sent was received or was a control wavelet."""
    fabric = Fabric(2, num_pes)
    outcome, values, data = run_on(fabric, reduce(fabric, TREES[name](num_pes), words), words)
    np.testing.assert_array_equal(values[:, 0], data.sum(axis=1))
    assert outcome.sent == outcome.received + outcome.filtered
    assert outcome.received == 2 * words * (num_pes - 1)


@settings(max_examples=40, deadline=None)
@given(tree=pre_order_trees(), words=st.integers(1, 30), restart=st.integers(0, 40))
def test_reduce_carries_any_pre_order_tree(tree: Tree, words: int, restart: int) -> None:
    """Two colours suffice: no stream turns wrongly or waits forever, however late an op begins."""
    fabric = Fabric(1, tree.num_pes)
    program = reduce(fabric, tree, words, restart_cycles=(restart, restart // 2))
    outcome, values, data = run_on(fabric, program, words)
    np.testing.assert_array_equal(values[:, 0], data.sum(axis=1))
    assert outcome.received == words * (tree.num_pes - 1)


@pytest.mark.parametrize("num_pes", [7, 32, 45])
@pytest.mark.parametrize("words", [1, 16, 200])
def test_reduce_by_a_generated_tree_is_right_and_cheap(num_pes: int, words: int) -> None:
    """A generated tree gives the right sum at no more model cost than the named trees."""
    tree = auto_generated(num_pes, words, WSE2)
    assert tree.cost(words, WSE2) <= min(t(num_pes).cost(words, WSE2) for t in TREES.values())
    fabric = Fabric(1, num_pes)
    _, values, data = run_on(fabric, reduce(fabric, tree, words), words)
    np.testing.assert_array_equal(values[:, 0], data.sum(axis=1))


@settings(max_examples=10, deadline=None)
@given(rows=st.integers(1, 6), columns=st.integers(1, 6), words=st.integers(1, 9))
def test_reduce_2d_and_snake_reduce_agree(rows: int, columns: int, words: int) -> None:
    """X-Y and snake give the same sum; the snake costs a chain through all PEs."""
    fabric = Fabric(rows, columns)
    snake, by_snake, data = run_on(fabric, snake_reduce(fabric, words), words)
    program = reduce_2d(fabric, two_phase(columns), binomial(rows), words)
    _, by_rows, _ = run_on(fabric, program, words)
    np.testing.assert_array_equal(by_snake[0, 0], data.sum(axis=(0, 1)))
    np.testing.assert_array_equal(by_rows[0, 0], data.sum(axis=(0, 1)))
    if fabric.num_pes > 1:
        assert snake.cycles == SETUP + words + (MESSAGE + 1) * (fabric.num_pes - 1)


@pytest.mark.parametrize("spec", [WSE2, WSE3, WSE3_SIMULATOR])
@pytest.mark.parametrize("num_pes", [2, 5, 8])
def test_all_reduces_leave_the_sum_everywhere(spec: FabricSpec, num_pes: int) -> None:
    """Reduce and broadcast, on a line and on a grid, and the ring, on every machine."""
    fabric = Fabric(3, num_pes, spec)
    length = 4 * num_pes
    line = all_reduce(fabric, two_phase(num_pes), length)
    ring = ring_all_reduce(fabric, length)
    grid = all_reduce_2d(fabric, chain(num_pes), chain(3), length)
    for program, axis in ((line, 1), (ring, 1), (grid, (0, 1))):
        _, values, data = run_on(fabric, program, length)
        total = data.sum(axis=axis, keepdims=True)
        np.testing.assert_array_equal(values, np.broadcast_to(total, values.shape))


@settings(max_examples=15, deadline=None)
@given(num_pes=st.integers(3, 64), words=st.integers(1, 60))
def test_reduce_cycles_follow_the_recurrence(num_pes: int, words: int) -> None:
    """Binary and generated trees are within 5 % of it, or a control wavelet's set-up."""
    for tree in (binomial(num_pes), auto_generated(num_pes, words, WSE2)):
        if max(tree.depths) > 1:
            cycles = run(reduce(Fabric(1, num_pes), tree, words), {}).cycles
            predicted = by_recurrence(tree, words)
            assert predicted - 1 <= cycles <= predicted + max(SETUP + MESSAGE, 0.05 * predicted)


def test_ring_all_reduce_takes_little_more_than_its_model() -> None:
    """HPDC'24 omits the set-up of a step, which waits for the step before."""
    num_pes, chunk = 8, 64
    outcome = run(ring_all_reduce(Fabric(1, num_pes), num_pes * chunk), {})
    model = 2 * (num_pes - 1) * (chunk + MESSAGE) + 4 * num_pes - 6
    steps = 2 * (num_pes - 1)
    assert model <= outcome.cycles <= model + (SETUP + 2) * steps


@pytest.mark.parametrize("dtype", [Dtype.FP16, Dtype.BF16])
def test_reduce_rounds_16_bit_sums_at_every_pe(dtype: Dtype) -> None:
    """A chain adds from the far end and rounds at every PE, bit for bit as in numpy."""
    fabric = Fabric(1, 9)
    data = np.random.default_rng(3).normal(size=(1, 9, 16)).astype(np.float32)
    outcome = run(reduce(fabric, chain(9), 16, dtype), {"x": data})
    total = encode(data[0, -1], dtype)
    for column in range(7, -1, -1):
        total = encode(decode(total, dtype) + decode(encode(data[0, column], dtype), dtype), dtype)
    np.testing.assert_array_equal(outcome.read("x")[0, 0], decode(total, dtype))
    assert outcome.sent == 8 * 16 // 2


def test_all_reduce_2d_repeats_bits_and_cycles() -> None:
    """The same program on the same data gives the same bits, cycles and counts."""
    fabric = Fabric(4, 9)
    outcomes = [
        run_on(fabric, all_reduce_2d(fabric, binomial(9), binomial(4), 6), 6)[0] for _ in range(2)
    ]
    first, second = outcomes
    assert (first.cycles, first.hops, first.sent) == (second.cycles, second.hops, second.sent)
    np.testing.assert_array_equal(first.memory.words, second.memory.words)
    np.testing.assert_array_equal(first.busy_cycles, second.busy_cycles)


def test_reduce_and_ring_refuse_shapes_that_do_not_fit() -> None:
    """A tree of another length than the line, and chunks that are not whole words."""
    with raises(ApplianceCompilationError, "tree-length-mismatch"):
        reduce(Fabric(1, 4), chain(5), 8)
    with raises(ApplianceCompilationError, "ring-chunk-not-whole"):
        ring_all_reduce(Fabric(1, 4), 10)
    with raises(ApplianceCompilationError, "ring-chunk-not-whole"):
        ring_all_reduce(Fabric(1, 4), 4, Dtype.FP16)
