"""The least bytes that a step sends between hosts: what no link and no tree can avoid.

Every other host with systems gets all weights once in the forward and once in the backward pass,
and sends its gradients once for each subtree of the reduce order that its micro-batches form: their
sum may not be taken in another order.
"""

from __future__ import annotations

from appliance.placement.placer import Placement
from waferstream.core.messages.reduce_order import Merger, leaf
from waferstream.core.program.schedule import Rounds

_PASSES = 2  # forward and backward
_FP32_BYTES = 4


def least_bytes(placement: Placement, num_parameters: int, num_micro_batches: int) -> int:
    """Return the least bytes of a step in fp32 of which all micro-batches are one round.

    Args:
        placement: Where the systems are; the weight servers are on the first host.
        num_parameters: Elements of the model.
        num_micro_batches: Micro-batches of a step.
    """
    share = -(-num_micro_batches // placement.num_systems)
    rounds = Rounds(num_micro_batches, placement.num_systems, share)
    copies = 0
    for run in placement.systems[1:]:
        if run:
            own = rounds.of_nodes(0, run)
            copies += _PASSES + num_subtrees(own, num_micro_batches)
    return copies * num_parameters * _FP32_BYTES


def num_subtrees(micro_batches: range, num_micro_batches: int) -> int:
    """Return how many sums are left of neighbouring micro-batches once siblings are added."""
    merger: Merger[int] = Merger(num_micro_batches, lambda left, right: left + right)
    for index in micro_batches:
        merger.offer(leaf(index, num_micro_batches), 1)
    return len(merger.take())
