"""Which activations go to activation servers: what a node has no room for.

A piece of the stash is free to leave between two segments that use it. Those that are away for
longest go first (Belady's rule, IBM Systems Journal 5(2), 1966), those of the first layers, until
all that stays fits at every segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Literal

from appliance.elaboration.round_size import (
    bytes_of_node,
    input_bytes,
    stash_bytes,
)
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.program.program import Program
from waferstream.core.program.trips import NO_TRIPS, Trip, Trips
from waferstream.core.units import format_bytes
from waferstream.machine.sram.paging import Page
from waferstream.machine.sram.space import Life, lives


def trips_of(
    program: Program,
    pages: Sequence[Page],
    num_csx: int,
    lanes: int,
    budget_bytes: int,
    num_servers: int | Literal["auto"],
) -> Trips:
    """Return what of each micro-batch the nodes of a host send to activation servers.

    Pages leave, and what it takes so that a micro-batch for each lane fits. Without servers nothing
    does.

    Args:
        program: The program to be installed.
        pages: What the emulated system has no room for.
        num_csx: Nodes that share the budget.
        lanes: Micro-batches that a node runs side by side.
        budget_bytes: Memory of a host for activations.
        num_servers: Activation servers; ``auto`` is one for each system if there are pages.
    """
    if num_servers == "auto":
        num_servers = num_csx if pages else 0
    if not num_servers:
        return NO_TRIPS
    fixed, _ = bytes_of_node(program, lanes)
    side_by_side = min(lanes, -(-program.num_micro_batches // num_csx))
    room_bytes = (budget_bytes // num_csx - fixed) // side_by_side - input_bytes(program)
    return Trips(plan_trips(program, room_bytes, pages), num_servers)


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


def bytes_elsewhere(program: Program, pages: Iterable[Page]) -> tuple[int, ...]:
    """Return what a node holds at each segment and an emulated system does not, in its bytes.

    That is what a wafer makes again or a part at a time, and pages that stay on the node.
    """
    samples, change = program.micro_batch_size, [0] * (len(program.segments) + 1)
    for life in lives(program):
        spare = life.stash.footprint.of(samples) - life.footprint.of(samples)
        change[life.producer] += spare
        change[life.readers[-1] + 1] -= spare
    for page in pages:
        change[page.sent_after + 1] += page.footprint.of(samples)
        change[page.needed_by] -= page.footprint.of(samples)
    return tuple(accumulate(change))


def plan_trips(program: Program, room_bytes: int, pages: Iterable[Page] = ()) -> tuple[Trip, ...]:
    """Return the trips with which the stash of a micro-batch fits a room, and those of pages.

    Those that help are returned where it does not fit with all of them.
    """
    samples = program.micro_batch_size
    chosen = [
        _trip(program, page.life, page.sent_after, page.needed_by)
        for page in pages
        if page.footprint.of(samples)
    ]
    stash = stash_bytes(program, chosen)
    for trip in sorted(_possible(program), key=lambda each: -len(each.absence)):
        if trip not in chosen and any(stash[segment] > room_bytes for segment in trip.absence):
            chosen.append(trip)
            for segment in trip.absence:
                stash[segment] -= trip.num_bytes
    return tuple(sorted(chosen, key=lambda each: (each.after, each.before)))


def _possible(program: Program) -> Iterator[Trip]:
    """Yield every trip of every piece of the stash, in order of the segments that make them."""
    for life in lives(program):
        for after, before in pairwise((life.producer, *life.readers)):
            trip = _trip(program, life, after, before)
            if trip.absence and trip.num_bytes:
                yield trip


def _trip(program: Program, life: Life, after: int, before: int) -> Trip:
    piece = program.segments[life.producer].stash.index(life.stash)
    num_bytes = life.stash.footprint.of(program.micro_batch_size) * program.widening
    return Trip(life.producer, piece, after, before, num_bytes)
