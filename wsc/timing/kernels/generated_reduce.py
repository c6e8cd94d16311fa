"""The auto-generated reduce of HPDC'24: the best pre-order tree for a length and a size.

In a pre-order tree every subtree is a run of neighbouring PEs whose first is its root, so links
carry streams in one direction only. A tree of depth D in which a PE receives at most C streams, of
energy E (sum of the distances from child to parent), takes ``max(C B, E B / (P - 1) + P - 1) +
(2 T_R + 1) D`` cycles for B wavelets. The least energy for each D and C follows by splitting off
the root's last child.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wsc.timing.hardware.fabric import FabricSpec
from wsc.timing.kernels.collectives import chain, depth_cycles, star

Energies = npt.NDArray[np.float32]
"""Least energy of a tree by number of PEs, exact in fp32; infinite where there is none."""


class Tree(NamedTuple):
    """What the model must know of a tree of reductions."""

    depth: int
    contention: int
    energy: int


def generated(fabric: FabricSpec, pes: int, wavelets: float) -> float:
    """Cycles of the best tree, chain and star included."""
    line = fabric.cycles_per_wavelet * wavelets
    best = min(chain(fabric, pes, wavelets), star(fabric, pes, wavelets))
    for tree in trees(pes):
        spread = line * tree.energy / (pes - 1) + fabric.hop_cycles * (pes - 1)
        cycles = max(line * tree.contention, spread) + depth_cycles(fabric) * tree.depth
        best = min(best, cycles)
    return best


@lru_cache(maxsize=64)
def trees(pes: int) -> tuple[Tree, ...]:
    """For each contention up to log2 P and each depth: the tree of least energy.

    Depths end at 2 sqrt(P), that of a two-phase reduce; the chain, which is deeper, and the star,
    which is busier, have forms of their own. Takes about P**2.5 log(P)**2 operations: seconds for
    a whole row of a wafer, once.
    """
    splits = np.arange(pes + 1)[:, None] - np.arange(pes + 1)[None, :]  # PEs of the last child
    found = []
    for contention in range(2, pes.bit_length() + 1):
        shallower = _alone(pes)
        for depth in range(1, 2 * isqrt(pes) + 1):
            shallower = _one_deeper(shallower, contention, splits)
            if np.isfinite(shallower[pes]):
                found.append(Tree(depth, contention, int(shallower[pes])))
    return tuple(found)


def _alone(pes: int) -> Energies:
    """Trees without children: one PE."""
    energies = np.full(pes + 1, np.inf, dtype=np.float32)
    energies[1] = 0.0
    return energies


def _one_deeper(shallower: Energies, contention: int, splits: npt.NDArray[np.int64]) -> Energies:
    """Trees whose root has up to ``contention`` children, each a tree of ``shallower``.

    The last child's root is as far from the root as all earlier subtrees are long.
    """
    last_child = np.where(splits > 0, shallower[np.maximum(splits, 0)], np.float32(np.inf))
    last_child += np.arange(len(shallower), dtype=np.float32)
    with_children = _alone(len(shallower) - 1)
    for _ in range(contention):
        one_more = (with_children + last_child).min(axis=1)
        with_children = np.minimum(with_children, one_more)
    return with_children
