"""Sums and maxima over the PEs of a row or column, by the tree that is fastest for their length."""

from __future__ import annotations

from csnode.fabric.collectives import (
    Tree,
    add_broadcast,
    add_reduce,
    binomial,
    chain,
    paths,
    star,
    two_phase,
)
from csnode.fabric.dtypes import Combine
from csnode.fabric.memory import Slice
from csnode.fabric.program import Program
from timing.kernels import collectives

COLOURS = 3
"""An all-reduce takes three colours, a reduce the first two of them."""

_TREES = {
    star: collectives.star,
    chain: collectives.chain,
    binomial: collectives.binomial,
    two_phase: collectives.two_phase,
}


def add_sum(
    program: Program, path: paths.Path, values: Slice, colour: int, combine: Combine = "add"
) -> None:
    """Combine ``values`` into position 0 of every line."""
    words = values.count // values.dtype.per_word
    tree = fastest_tree(program, path.length, words)
    add_reduce(program, path, tree, values, (colour, colour + 1), combine=combine)


def add_sum_for_all(
    program: Program, path: paths.Path, values: Slice, colour: int, combine: Combine = "add"
) -> None:
    """Combine ``values`` over every line, for all its PEs."""
    add_sum(program, path, values, colour, combine)
    add_broadcast(program, path, values, colour + 2)


def fastest_tree(program: Program, pes: int, words: int) -> Tree:
    """Star, chain, binomial or two-phase, by their closed forms: what a compiler would know."""
    spec = program.fabric.spec
    return min(_TREES, key=lambda tree: _TREES[tree](spec, pes, words))(pes)
