"""The reduce order: every grouping gives the same parentheses."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.roles.subtrees import merged_subtrees
from waferstream.core.messages.reduce_order import Merger, Subtree, leaf, root

Part = tuple[Subtree, str]
"""A subtree of micro-batches and its sum, written out."""
counts = st.integers(1, 40)


def expression(first: int, size: int, count: int) -> str:
    """Return the canonical sum of micro-batches [first, first + size), written out."""
    if size == 1:
        return str(first)
    half = size // 2
    left = expression(first, half, count)
    if first + half >= count:
        return left
    return f"({left}+{expression(first + half, half, count)})"


def canonical(count: int) -> str:
    size = 1
    while size < count:
        size *= 2
    return expression(0, size, count)


def added(left: str, right: str) -> str:
    return f"({left}+{right})"


def merged(parts: Iterable[Part], count: int) -> list[Part]:
    merger = Merger(count, added)
    for subtree, value in parts:
        merger.offer(subtree, value)
    return merger.take()


@st.composite
def groupings(draw: st.DrawFn, parts: Sequence[Part]) -> list[list[Part]]:
    """Return the parts in any order, cut into any number of groups, some of them empty."""
    shuffled = draw(st.permutations(parts))
    cuts = sorted(draw(st.lists(st.integers(0, len(parts)), max_size=6)))
    bounds = [0, *cuts, len(parts)]
    return [shuffled[a:b] for a, b in pairwise(bounds)]


@given(st.data(), counts)
def test_merger_sum_is_independent_of_grouping(data: st.DataObject, count: int) -> None:
    """Nodes, switches and rounds may be anything: the sum is one expression."""
    parts = [(leaf(index, count), str(index)) for index in range(count)]
    for _level in ("nodes", "switches", "rounds"):
        groups = data.draw(groupings(parts))
        parts = [part for group in groups for part in merged(group, count)]
    assert merged(data.draw(st.permutations(parts)), count) == [(root(count), canonical(count))]


@pytest.mark.parametrize(
    ("count", "written"),
    [
        (1, "0"),
        (2, "(0+1)"),
        (3, "((0+1)+2)"),
        (5, "(((0+1)+(2+3))+4)"),
        (6, "(((0+1)+(2+3))+(4+5))"),
        (7, "(((0+1)+(2+3))+((4+5)+6))"),
    ],
)
def test_merger_order_matches_the_documentation(count: int, written: str) -> None:
    """Small batches, written out by hand."""
    assert merged([(leaf(i, count), str(i)) for i in range(count)], count)[0][1] == written


@given(st.data(), counts)
def test_merger_adds_siblings_only(data: st.DataObject, count: int) -> None:
    """What is held covers the micro-batches that were offered, each once."""
    chosen = data.draw(st.lists(st.integers(0, count - 1), unique=True))
    subtrees = merged_subtrees(chosen, count)
    covered = [
        i for subtree in subtrees for i in range(subtree.lo, subtree.lo + subtree.size(count))
    ]
    assert sorted(chosen) == covered
    promoted = set(subtrees)
    assert not any(subtree.sibling() in promoted for subtree in subtrees)


@given(st.data(), counts)
def test_merger_turns_a_run_into_few_subtrees(data: st.DataObject, count: int) -> None:
    """A node forwards at most two subtrees per level of the tree for the run that it computed."""
    start = data.draw(st.integers(0, count))
    stop = data.draw(st.integers(start, count))
    assert len(merged_subtrees(range(start, stop), count)) <= max(1, 2 * root(count).level)


@given(st.data(), counts)
def test_merger_is_whole_with_the_last_micro_batch(data: st.DataObject, count: int) -> None:
    """A merger is whole when the last micro-batch comes and not one earlier."""
    merger = Merger(count, added)
    for index in data.draw(st.permutations(range(count))):
        assert not merger.is_whole
        merger.offer(leaf(index, count), str(index))
    assert merger.is_whole
    assert merger.take() == [(root(count), canonical(count))]
    assert merger.take() == []


def test_merger_adds_the_lower_half_first() -> None:
    """``add`` gets the lower micro-batches as its left operand, in any order of arrival."""
    for order in ((0, 1), (1, 0)):
        assert merged([(leaf(i, 2), str(i)) for i in order], 2) == [(Subtree(0, 1), "(0+1)")]


def test_merger_refuses_a_subtree_twice() -> None:
    """A gradient that arrives twice is a broken protocol, not another addend."""
    merger = Merger(4, added)
    merger.offer(Subtree(1, 0), "1")
    with pytest.raises(ValueError, match="twice"):
        merger.offer(Subtree(1, 0), "1")


@pytest.mark.parametrize("micro_batch", [-1, 3])
def test_leaf_refuses_an_index_outside_the_batch(micro_batch: int) -> None:
    """There is no subtree of a micro-batch that does not exist."""
    with pytest.raises(ValueError, match=r"outside \[0, 3\)"):
        leaf(micro_batch, 3)


@given(counts, st.integers(0, 39))
def test_subtree_sibling_and_parent_agree(count: int, index: int) -> None:
    """Siblings are each other's siblings, have one parent, and do not overlap."""
    subtree = leaf(index % count, count)
    sibling = subtree.sibling()
    assert sibling.sibling() == subtree
    assert sibling.parent() == subtree.parent()
    assert abs(sibling.lo - subtree.lo) == 1 << subtree.level


def test_subtree_promotion_skips_empty_siblings() -> None:
    """The last odd micro-batch represents the largest subtree that contains only it."""
    size = partial(Subtree.size, num_micro_batches=5)
    assert leaf(4, 5) == Subtree(4, 2)
    assert (size(Subtree(4, 2)), size(Subtree(0, 2)), size(root(5))) == (1, 4, 5)
