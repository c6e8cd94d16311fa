"""How many micro-batches a node takes in a round: as many as the memory of its host allows.

A round streams all weights once forward and once backward and sends one sum of gradients for each
subtree, so fewer rounds cost less. A micro-batch of a round takes memory from its first segment to
its last one:

    per micro-batch   the peak of its stash, and its inputs three times: here, and at the input
                      worker for this round and the next
    per lane          the working memory of a segment and the gradients that it returns
    per node          a sum of gradients for each level of the reduce order

A node takes its whole share of the batch if that fits, otherwise the most of ``lanes``,
2 x ``lanes``, 4 x ``lanes``, ... that fit, and at least ``lanes``. Powers of two end at the
borders of subtrees, so fewer sums leave. Neither weights nor emulated time depend on the number.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Literal

from appliance.placement.host_memory import free_bytes
from waferstream.core.program.program import MASTER_BYTES, Program
from waferstream.core.program.trips import Trip
from waferstream.machine.sram.space import lives


def activation_bytes(
    requested: int | Literal["auto"], weight_bytes: int, free: int | None = None
) -> int:
    """Return the bytes of a host that the activations of all its nodes may take.

    Args:
        requested: ``auto`` is half of what is free beside masters and state.
        weight_bytes: Bytes of masters and state.
        free: Free bytes of the host; those of this host by default.
    """
    if requested != "auto":
        return requested
    return max(0, (free_bytes() if free is None else free) - weight_bytes) // 2


def micro_batches_of_round(
    program: Program, num_csx: int, lanes: int, budget_bytes: int, trips: Iterable[Trip] = ()
) -> int:
    """Return how many micro-batches a node takes in a round.

    Args:
        program: The program to be installed.
        num_csx: Nodes that share the budget; all of them, since they may be on one host.
        lanes: Micro-batches that a node runs side by side.
        budget_bytes: Memory of a host for activations.
        trips: What of a micro-batch is on activation servers.
    """
    share = -(-program.num_micro_batches // num_csx)
    most = most_micro_batches(program, num_csx, lanes, budget_bytes, trips)
    if share <= most:
        return share
    count = lanes
    while 2 * count <= most:
        count *= 2
    return count


def most_micro_batches(
    program: Program, num_csx: int, lanes: int, budget_bytes: int, trips: Iterable[Trip] = ()
) -> int:
    """Return the most micro-batches of a round that fit a node, at least one for each lane."""
    fixed, each = bytes_of_node(program, lanes, trips)
    return max(lanes, max(0, budget_bytes // num_csx - fixed) // each)


def stash_bytes(program: Program, trips: Iterable[Trip] = ()) -> list[int]:
    """Return the host bytes that a micro-batch has stashed on its node at each segment."""
    change = [0] * (len(program.segments) + 1)
    for life in lives(program):
        num_bytes = life.stash.footprint.of(program.micro_batch_size) * program.widening
        change[life.producer] += num_bytes
        change[life.readers[-1] + 1] -= num_bytes
    for trip in trips:
        change[trip.after + 1] -= trip.num_bytes
        change[trip.before] += trip.num_bytes
    return list(accumulate(change))


def most_away_bytes(program: Program, trips: Iterable[Trip]) -> int:
    """Return the most bytes that a micro-batch has on activation servers at a time."""
    change = [0] * (len(program.segments) + 1)
    for trip in trips:
        change[trip.after + 1] += trip.num_bytes
        change[trip.before] -= trip.num_bytes
    return max(accumulate(change))


def input_bytes(program: Program) -> int:
    """Return the bytes of a micro-batch's inputs, here and as they wait for two rounds."""
    return 3 * sum(spec.num_bytes for spec in program.inputs_of(0))


def bytes_of_node(program: Program, lanes: int, trips: Iterable[Trip] = ()) -> tuple[int, int]:
    """Return the bytes that a node needs in any round, and those of each micro-batch, not 0."""
    samples = program.micro_batch_size
    segments = program.segments
    gradients = max(program.num_elements(segment.gradients) for segment in segments) * MASTER_BYTES
    working = max((each.working + each.blocked).of(samples) for each in segments)
    levels = program.num_micro_batches.bit_length()
    fixed = lanes * (working * program.widening + gradients) + levels * gradients
    return fixed, max(1, max(stash_bytes(program, trips)) + input_bytes(program))
