"""What leaves a node: the longest absences first, no more than it takes, and a clear refusal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest

from appliance.coordinator.commands import Run
from appliance.elaboration.elaborate import ClusterSize
from appliance.elaboration.round_size import bytes_of_node, most_away_bytes, stash_bytes
from appliance.elaboration.trips import bytes_elsewhere, plan_trips, trips_of
from csnode.micro_batch import MicroBatch
from tests.support.errors import raises
from tests.support.roles.local_machine import (
    BF16,
    FP32,
    Regression,
    compile_model,
    installation,
    random_batches,
    sgd,
    start,
)
from waferstream.compiler.compiled import Compiled
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.messages.payload import Arena, Slab
from waferstream.core.program.program import Program, ProgramKind
from waferstream.core.program.trips import NO_TRIPS, Trip
from waferstream.core.roles.installation import Installation
from waferstream.machine.sram import Page
from waferstream.machine.sram.space import lives
from waferstream.numerics.precision import StreamPrecision


@cache
def compiled() -> Compiled:
    return compile_model(Regression(depth=4), random_batches(1, 8)[0], num_micro_batches=4)


def installed(size: ClusterSize) -> Installation:
    batches = random_batches(1, 8)
    return installation(compiled(), lambda: batches, sgd(Regression(depth=4)), size)


def test_as_many_trips_as_it_takes() -> None:
    """The smaller the room, the more leaves, until nothing is left that can."""
    program = compiled().program
    whole = stash_bytes(program)
    plans = [plan_trips(program, room) for room in range(max(whole), -1, -8)]
    assert plans[0] == ()
    assert [len(plan) for plan in plans] == sorted(len(plan) for plan in plans)
    for room, plan in zip(range(max(whole), -1, -8), plans, strict=True):
        left = max(stash_bytes(program, plan))
        assert left <= room or plan == plans[-1]
        assert left + most_away_bytes(program, plan) >= max(whole)


def test_longest_absence_leaves_first() -> None:
    """The activations of the first layer: the backward pass reads them last."""
    program = compiled().program
    (first,) = plan_trips(program, max(stash_bytes(program)) - 1)
    longest = max(len(trip.absence) for trip in plan_trips(program, 0))
    assert len(first.absence) == longest
    assert program.segments[first.after].phase == "forward"
    assert program.segments[first.before].phase == "backward"


def test_trip_of_a_piece_that_is_read_meanwhile_is_empty() -> None:
    """Another size may be cut in other pieces."""
    program = compiled().program
    trip = plan_trips(program, 0)[0]
    (name,) = trip.values_of(program.segments)
    late = replace(trip, before=len(program.segments) - 1)
    assert any(name in program.segments[index].inputs for index in late.absence)
    assert late.values_of(program.segments) == ()
    assert replace(trip, piece=99).values_of(program.segments) == ()


@pytest.mark.parametrize("num_servers", [1, 2, 3])
def test_servers_take_trips_in_turn(num_servers: int) -> None:
    """Every trip has one server."""
    trips = trips_of(compiled().program, (), 2, 1, 0, num_servers)
    counts = [trips.num_of(server) for server in range(num_servers)]
    assert sum(counts) == len(trips.all) > 0
    servers = [trips.server_of(index) for index in range(len(trips.all))]
    assert [servers.count(server) for server in range(num_servers)] == counts


@pytest.mark.parametrize(
    "precision",
    [FP32, BF16, StreamPrecision("bfloat16", "float32"), StreamPrecision("cbfloat16", "cbfloat16")],
    ids=["fp32", "bf16", "level 0", "cbfloat16"],
)
def test_planned_bytes_are_those_that_leave(
    precision: StreamPrecision, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links refuse larger payloads."""
    sent, leave = [], MicroBatch.leave

    def spy(batch: MicroBatch, trip: int, names: Sequence[str], arena: Arena) -> Slab:
        sent.append((trip, leave(batch, trip, names, arena)))
        return sent[-1][1]

    monkeypatch.setattr(MicroBatch, "leave", spy)
    model, batches = Regression(depth=4), random_batches(1, 8)
    step = compile_model(model, batches[0], 4, precision=precision)
    size = ClusterSize(2, activation_bytes=least_bytes(step.program, 2), num_activation_servers=1)
    running = installation(step, lambda: batches, sgd(model), size)
    start(running, model, size).do(Run(ProgramKind.TRAIN, 1, 1))
    trips = running.trips.all
    assert len(sent) == 4 * len(trips) > 0
    assert all(slab.num_bytes == trips[trip].num_bytes for trip, slab in sent)


def test_servers_of_auto_come_with_pages() -> None:
    """One for each system; pages leave even where the host has room."""
    program = compiled().program
    piece, *_ = (life for life in lives(program) if life.readers[-1] - life.producer > 1)
    page = Page(piece, piece.producer, piece.readers[-1])
    assert trips_of(program, (), 3, 1, 1 << 30, "auto") == NO_TRIPS
    trips = trips_of(program, (page,), 3, 1, 1 << 30, "auto")
    assert trips.num_servers == 3
    assert [(trip.after, trip.before) for trip in trips.all] == [(page.sent_after, page.needed_by)]


def test_bytes_elsewhere_are_those_of_absent_pages() -> None:
    """From the segment after they have left to the one before they are back."""
    program = compiled().program
    piece, *_ = (life for life in lives(program) if life.readers[-1] - life.producer > 1)
    page = Page(piece, piece.producer, piece.readers[-1])
    without, found = bytes_elsewhere(program, ()), bytes_elsewhere(program, (page,))
    more = [b - a for a, b in zip(without, found, strict=True)]
    away = range(page.sent_after + 1, page.needed_by)
    num_bytes = page.footprint.of(program.micro_batch_size)
    assert more == [num_bytes if index in away else 0 for index in range(len(more))]


def test_nothing_leaves_without_servers_or_need() -> None:
    """Whatever the memory is, or where it is large enough."""
    assert installed(ClusterSize(2, activation_bytes=1)).trips.all == ()
    size = ClusterSize(2, num_activation_servers=1, activation_bytes=1 << 30)
    assert installed(size).trips.all == ()


def test_memory_too_small_for_what_cannot_leave_is_refused() -> None:
    """The remedy names the least memory, and with it the program is installed."""
    size = ClusterSize(2, num_activation_servers=1, activation_bytes=1)
    with raises(ApplianceResourceExhausted, "activations-exceed-memory") as caught:
        installed(size)
    needed = least_bytes(compiled().program, 2)
    assert str(needed) in str(caught.value.remedy)
    assert installed(replace(size, activation_bytes=needed)).trips.all
    with raises(ApplianceResourceExhausted, "activations-exceed-memory"):
        installed(replace(size, activation_bytes=needed - 1))


def least_bytes(program: Program, num_csx: int) -> int:
    trips: tuple[Trip, ...] = plan_trips(program, 0)
    return num_csx * sum(bytes_of_node(program, 1, trips))
