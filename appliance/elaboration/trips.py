"""Which activations go to activation servers: what a node has no room for.

A piece of the stash is free to leave between two segments that use it. Those that are away for
longest go first (Belady's rule, IBM Systems Journal 5(2), 1966), those of the first layers, until
all that stays fits at every segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from appliance.elaboration.round_size import (
    bytes_of_node,
    held_factor,
    input_bytes,
    stash_bytes,
)
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.program.program import Program
from waferstream.core.program.trips import NO_TRIPS, Trip, Trips
from waferstream.core.units import format_bytes
from waferstream.machine.sram.space import lives


def trips_of(
    program: Program, num_csx: int, lanes: int, budget_bytes: int, num_servers: int
) -> Trips:
    """Return what of each micro-batch the nodes of a host send to activation servers.

    Nothing leaves where a micro-batch for each lane fits, or where there are no servers.

    Args:
        program: The program to be installed.
        num_csx: Nodes that share the budget.
        lanes: Micro-batches that a node runs side by side.
        budget_bytes: Memory of a host for activations.
        num_servers: Activation servers.
    """
    if not num_servers:
        return NO_TRIPS
    fixed, _ = bytes_of_node(program, lanes)
    side_by_side = min(lanes, -(-program.num_micro_batches // num_csx))
    room_bytes = (budget_bytes // num_csx - fixed) // side_by_side - input_bytes(program)
    return Trips(plan_trips(program, room_bytes), num_servers)


def check_room(program: Program, trips: Trips, num_csx: int, lanes: int, budget_bytes: int) -> None:
    """Check that nodes have room for what cannot leave; arguments as of ``trips_of``.

    Raises:
        ApplianceResourceExhausted: A micro-batch is too large, with all that can leave away.
    """
    fixed, each = bytes_of_node(program, lanes, trips.all)
    side_by_side = min(lanes, -(-program.num_micro_batches // num_csx))
    needed = num_csx * (fixed + side_by_side * each)
    if needed > budget_bytes:
        raise ApplianceResourceExhausted(
            f"what cannot leave {num_csx} systems needs {format_bytes(needed)}",
            code="activations-exceed-memory",
            where="runtime.activation_memory",
            value=f"{format_bytes(budget_bytes)}, with {len(trips.all)} trips of each micro-batch "
            "to activation servers",
            rule="a host holds what a segment reads, makes and sends, for each lane of each system",
            remedy=f"raise it to {needed}, or lower csx.performance.micro_batch_size",
        )


def plan_trips(program: Program, room_bytes: int) -> tuple[Trip, ...]:
    """Return the trips with which the stash of a micro-batch fits a room.

    Those that help are returned where it does not fit with all of them.
    """
    stash = stash_bytes(program)
    chosen = []
    for trip in sorted(_possible(program), key=lambda each: -len(each.absence)):
        if any(stash[segment] > room_bytes for segment in trip.absence):
            chosen.append(trip)
            for segment in trip.absence:
                stash[segment] -= trip.num_bytes
    return tuple(sorted(chosen, key=lambda each: (each.after, each.before)))


def _possible(program: Program) -> Iterator[Trip]:
    """Yield every trip of every piece of the stash, in order of the segments that make them."""
    factor, samples = held_factor(program), program.micro_batch_size
    for life in lives(program):
        num_bytes = life.stash.footprint.of(samples) * factor
        for after, before in pairwise((life.producer, *life.readers)):
            if before - after > 1 and num_bytes:
                piece = program.segments[life.producer].stash.index(life.stash)
                yield Trip(life.producer, piece, after, before, num_bytes)
