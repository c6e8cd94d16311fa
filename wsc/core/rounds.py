"""Which node computes which micro-batch, and when: rounds.

A step streams its weights once per *round*; in a round every node works on up to ``lanes``
micro-batches side by side. Micro-batches are dealt in index order, so a round covers one
contiguous run of them, each node a contiguous part of that run, and siblings of the reduce
order mostly meet inside a node or under one switch.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rounds:
    """Deal ``num_micro_batches`` over ``num_nodes`` nodes of ``lanes`` lanes each."""

    num_micro_batches: int
    num_nodes: int
    lanes: int = 1

    @property
    def count(self) -> int:
        """Rounds in a step."""
        return -(-self.num_micro_batches // (self.num_nodes * self.lanes))

    def of_node(self, round_index: int, node: int) -> range:
        """The micro-batches of one node in one round; empty when the batch has run out."""
        first = (round_index * self.num_nodes + node) * self.lanes
        stop = min(first + self.lanes, self.num_micro_batches)
        return range(first, max(first, stop))

    def of_nodes(self, round_index: int, nodes: range) -> range:
        """The micro-batches of a run of neighbouring nodes in one round."""
        first = self.of_node(round_index, nodes.start).start
        stop = min(first + len(nodes) * self.lanes, self.num_micro_batches)
        return range(first, max(first, stop))

    def node_of(self, micro_batch: int) -> int:
        """The node that computes a micro-batch."""
        return micro_batch // self.lanes % self.num_nodes
