"""Reduction trees on a line of PEs, numbered in pre-order from the root at position 0.

In pre-order every subtree is an interval, so the PEs of a subtree are neighbours, messages never
cross, and two colours carry any tree (Luczynski et al., HPDC'24, arXiv 2404.15888).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from csnode.fabric.dtypes import Array
from waferstream.core.errors import ApplianceCompilationError
from waferstream.machine.hardware.fabric import FabricSpec
from waferstream.machine.kernels.collectives import depth_cycles

MOST_LEVELS = 64
"""Depth and contention limit of the search; chain and star represent deeper and wider trees."""


@dataclass(frozen=True)
class Tree:
    """Reduction tree; ``parents[i]`` is the parent of position i, -1 for the root.

    Raises ApplianceCompilationError when the numbering is not a pre-order.
    """

    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        branch: list[int] = []
        for position, parent in enumerate(self.parents):
            while branch and branch[-1] != parent:
                branch.pop()
            if parent != (branch[-1] if branch else -1) or (position > 0 and parent < 0):
                raise ApplianceCompilationError(
                    "a reduction tree must be numbered in pre-order",
                    code="tree-not-pre-order",
                    where=f"position {position}",
                    value=f"parent {parent}",
                    rule="each subtree is an interval of positions; only position 0 is a root",
                )
            branch.append(position)

    @property
    def num_pes(self) -> int:
        """Positions on the line."""
        return len(self.parents)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Children of each position, nearest first, in the order of their messages."""
        children: list[list[int]] = [[] for _ in self.parents]
        for position, parent in enumerate(self.parents[1:], start=1):
            children[parent].append(position)
        return tuple(map(tuple, children))

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Distance of each position from the root, in messages."""
        depths = [0]
        for parent in self.parents[1:]:
            depths.append(depths[parent] + 1)
        return tuple(depths)

    @cached_property
    def passing(self) -> tuple[frozenset[int], ...]:
        """Parities of the depths whose messages pass each position on their way."""
        passing: list[frozenset[int]] = [frozenset()]
        for position, parent in enumerate(self.parents[1:], start=1):
            is_last = self.children[parent][-1] == position
            own = frozenset() if is_last else frozenset({self.depths[position] % 2})
            passing.append(passing[parent] | own)
        return tuple(passing)

    def cost(self, words: int, spec: FabricSpec) -> float:
        """Return the cycles by the cost model of HPDC'24 (timing model, section 2b).

        ``max(C, E / N + L) + (2 T_R + 1) D``: contention C (most words that one PE receives),
        energy E (hops of all words), links N, distance L, depth D.
        """
        if self.num_pes == 1:
            return 0.0
        contention = words * max(map(len, self.children))
        hops = sum(i - parent for i, parent in enumerate(self.parents) if i)
        links = self.num_pes - 1
        latency = depth_cycles(spec) * max(self.depths)
        return max(contention, words * hops / links + links) + latency


def chain(num_pes: int) -> Tree:
    """Return a chain: each PE passes the sum to its neighbour."""
    return Tree(tuple(range(-1, num_pes - 1)))


def star(num_pes: int) -> Tree:
    """Return a star: all PEs send to the root."""
    return Tree((-1,) + (0,) * (num_pes - 1))


def binomial(num_pes: int) -> Tree:
    """Return a binomial tree: every PE adds subtrees of 1, 2, 4, ... PEs, nearest first.

    Counted from the far end, position r sends to r with its lowest zero bit set.
    """
    last = num_pes - 1
    parents = []
    for position in range(1, num_pes):
        far = last - position
        receiver = far | (far + 1)
        parents.append(max(0, last - receiver))
    return Tree((-1, *parents))


def two_phase(num_pes: int, group: int | None = None) -> Tree:
    """Return chains within groups, then a chain over the groups' leaders; sqrt(P) PEs per group."""
    size = group or max(1, round(math.sqrt(num_pes)))
    if size < 1:
        raise ApplianceCompilationError(
            f"a group must have at least one PE; got {group}",
            code="tree-group-empty",
            value=group,
            rule=">= 1",
        )
    return Tree((-1, *(i - 1 if i % size else i - size for i in range(1, num_pes))))


def auto_generated(num_pes: int, words: int, spec: FabricSpec) -> Tree:
    """Return the cheapest tree by ``Tree.cost``, from a search over pre-order trees.

    Let E(d, c, p) be the least energy of a tree of p PEs, depth at most d, whose root has at most c
    children. Its last child, i hops away, roots the last p - i PEs::

        E(d, c, p) = min over i of  E(d, c - 1, i) + i + E(d - 1, c, p - i)

    after HPDC'24 (arXiv 2404.15888). The best (d, c) has the least cost.
    """
    known = [chain(num_pes), star(num_pes), binomial(num_pes), two_phase(num_pes)]
    best = min(known, key=lambda tree: tree.cost(words, spec))
    if num_pes < 3:
        return best
    limit = best.cost(words, spec)
    per_level = depth_cycles(spec)
    deepest = int(min(MOST_LEVELS, num_pes - 1, max(1, (limit - num_pes + 1) // per_level)))
    widest = int(min(MOST_LEVELS, num_pes - 1, max(1, limit // words)))
    energy, split = _least_energies(num_pes, deepest, widest)
    depths, contentions = np.arange(deepest + 1)[:, None], np.arange(widest + 1)
    links = num_pes - 1
    cost = np.maximum(words * contentions, words * energy[:, :, num_pes] / links + links)
    cost = cost + per_level * depths
    depth, contention = np.unravel_index(np.argmin(cost), cost.shape)
    if cost[depth, contention] >= limit:
        return best
    parents = [-1] * num_pes
    _build(split, int(depth), int(contention), 0, num_pes, parents)
    return Tree(tuple(parents))


def _least_energies(num_pes: int, deepest: int, widest: int) -> tuple[Array, Array]:
    """Return E and the best i, each [depth, children, PEs]."""
    energy = np.full((deepest + 1, widest + 1, num_pes + 1), np.inf)
    energy[:, :, 1] = 0
    split = np.zeros(energy.shape, dtype=np.int32)
    sizes = np.arange(num_pes + 1)
    near = sizes[None, :]  # i
    far = sizes[:, None] - near  # p - i
    possible = (near >= 1) & (far >= 1)
    for depth in range(1, deepest + 1):
        for children in range(1, widest + 1):
            left = energy[depth, children - 1] + sizes
            right = energy[depth - 1, children][np.where(possible, far, 0)]
            total = np.where(possible, left[None, :] + right, np.inf)
            total[1, 0] = 0  # one PE, which has no child
            split[depth, children] = total.argmin(axis=1)
            energy[depth, children] = total[sizes, split[depth, children]]
    return energy, split


def _build(
    split: Array, depth: int, children: int, root: int, num_pes: int, parents: list[int]
) -> None:
    """Fill in the parents of the tree of ``num_pes`` PEs that begins at ``root``."""
    while num_pes > 1:
        near = int(split[depth, children, num_pes])
        parents[root + near] = root
        _build(split, depth - 1, children, root + near, num_pes - near, parents)
        num_pes, children = near, children - 1
