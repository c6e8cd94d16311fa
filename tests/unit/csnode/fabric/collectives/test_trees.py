"""Reduction trees: pre-order, and the costs of the published model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csnode.fabric.collectives.trees import Tree, auto_generated, binomial, chain, star, two_phase
from tests.support.errors import raises
from waferstream.core.errors import ApplianceCompilationError
from waferstream.machine.hardware.fabric import WSE2


def pre_orders(num_pes: int) -> Iterator[Tree]:
    for parents in itertools.product(*(range(i) for i in range(1, num_pes))):
        try:
            yield Tree((-1, *parents))
        except ApplianceCompilationError:
            continue


@given(num_pes=st.integers(1, 200), group=st.integers(1, 30))
def test_named_trees_are_in_pre_order(num_pes: int, group: int) -> None:
    """Building a tree checks it, for any number of PEs."""
    trees = [chain(num_pes), star(num_pes), binomial(num_pes), two_phase(num_pes, group)]
    assert all(tree.num_pes == num_pes for tree in trees)


@pytest.mark.parametrize("levels", range(1, 9))
def test_binomial_tree_has_one_message_per_level(levels: int) -> None:
    """For 2^k PEs, the root has k children and the depth is k."""
    tree = binomial(2**levels)
    assert len(tree.children[0]) == max(tree.depths) == levels


@pytest.mark.parametrize("parents", [(-1, 0, 0, 1), (-1, 2, 0), (0, 0), (-1, -1)])
def test_tree_refuses_other_numberings(parents: tuple[int, ...]) -> None:
    """A subtree that is not an interval cannot be routed with two colours."""
    with raises(ApplianceCompilationError, "tree-not-pre-order"):
        Tree(parents)


def test_tree_cost_is_the_published_formula() -> None:
    """Timing model 2b, P = 16: chain, star (in its large limit) and binary tree."""
    num_pes, words, message = 16, 32, 2 * WSE2.ramp_cycles + 1
    assert chain(num_pes).cost(words, WSE2) == words + (message + 1) * (num_pes - 1)
    assert star(num_pes).cost(words, WSE2) == words * (num_pes - 1) + message
    tree = max(words * 4, words * num_pes * 4 / (2 * (num_pes - 1)) + num_pes - 1) + message * 4
    assert binomial(num_pes).cost(words, WSE2) == tree


@pytest.mark.parametrize("words", [1, 4, 40])
def test_auto_generated_is_near_the_best_tree(words: int) -> None:
    """The search is within 5 % of the best of all 429 pre-order trees of 8 PEs."""
    trees = list(pre_orders(8))
    assert len(trees) == 429
    best = min(tree.cost(words, WSE2) for tree in trees)
    assert auto_generated(8, words, WSE2).cost(words, WSE2) <= 1.05 * best
