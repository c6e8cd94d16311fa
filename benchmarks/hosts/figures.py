"""The figures of a cluster over several hosts, each measured with trainings side by side.

They stand beside the least bytes that a step sends between hosts, what no link and no tree can
avoid. Every other host with systems gets all weights once in the forward and once in the backward
pass, and sends its gradients once for each subtree of the reduce order that its micro-batches form:
their sum may not be taken in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from statistics import median
from time import perf_counter, process_time
from typing import Any

from appliance.placement.placer import Host, Placement, Placer
from benchmarks.hosts.miniature import MiniatureHosts
from benchmarks.hosts.runs import silent_host, slow_link
from benchmarks.hosts.training import Model, Training
from waferstream.core.messages.reduce_order import Merger, leaf
from waferstream.core.program.schedule import Rounds

_SMALL = Model(hidden=256, layers=6, vocab=4096, sequence_length=32, num_micro_batches=12)
_WIDE = Model(hidden=512, layers=6, vocab=12288, sequence_length=64, num_micro_batches=8)  # 25M
_LONG = replace(_WIDE, sequence_length=512)
_TINY = Model(hidden=128, layers=4, vocab=2048, sequence_length=16, num_micro_batches=12)
_MANY = Model(hidden=32, layers=2, vocab=256, sequence_length=8, num_micro_batches=32)

_SLOW_MEGABITS = 200
_CPUS_OF_HOST = 12
_STAR: dict[str, Any] = {"is_star": True, "link": "grpc"}

Row = dict[str, Any]
"""One measurement."""

_PASSES = 2  # forward and backward
_FP32_BYTES = 4


def bytes_sent(hosts: MiniatureHosts, steps: int) -> Iterator[Row]:
    """Yield the bytes over all wires against the least, for 4 and 12 systems."""
    num_parameters = _SMALL.num_parameters()
    placer = Placer(
        tuple(Host(str(i), "", _CPUS_OF_HOST) for i in range(hosts.count)), strategy="SPREAD"
    )
    for num_csx in (4, 12):
        placement = placer.place(num_csx)
        least = steps * least_bytes(placement, num_parameters, _SMALL.num_micro_batches)
        with Training(hosts, _SMALL, num_csx, placement="SPREAD") as training:
            training.run(1)
            cost = training.run(steps)
        ratio = sum(cost.sent_bytes) / least
        yield {"hosts": hosts.count, "num_csx": num_csx, "ratio": ratio, "least_bytes": least} | (
            asdict(cost)
        )


def cpu_of_step(hosts: MiniatureHosts, model: Model, steps: int, repeats: int) -> Iterator[Row]:
    """Yield the processor time of a step on one host and on all in turn."""
    for _ in range(repeats):
        found = {}
        for name, placement in (("one host", "STRICT_PACK"), ("three hosts", "SPREAD")):
            with Training(hosts, model, 4, placement=placement) as training:
                training.run(1)
                found[name] = training.run(steps).cpu_seconds / steps
        yield {**found, "ratio": found["three hosts"] / found["one host"]}


def rate_on_slow_wires(hosts: MiniatureHosts, steps: int, repeats: int) -> Iterator[Row]:
    """Yield samples/s at 200 Mbit/s, with a switch for each host and as a star over gRPC."""
    for _ in range(repeats):
        found = {}
        for name, options in (("star, gRPC", _STAR), ("auto", {})):
            with Training(hosts, _TINY, 12, placement="SPREAD", **options) as training:
                training.run(1)
                for host in range(3):
                    hosts.network.limit_rate(host, _SLOW_MEGABITS)
                seconds = training.run(steps).seconds
                for host in range(3):
                    hosts.network.lift_limit(host)
                found[name] = steps * _TINY.num_micro_batches / seconds
        yield {**found, "ratio": found["auto"] / found["star, gRPC"]}


def start_of_many(hosts: MiniatureHosts, repeats: int) -> Iterator[Row]:
    """Yield the seconds from the command to the end of the first step, for 32 systems."""
    for _ in range(repeats):
        begin = perf_counter()
        with Training(hosts, _MANY, 32, placement="SPREAD") as training:
            cost = training.run(1)
            seconds = perf_counter() - begin
        yield {"num_csx": 32, "seconds": seconds, "cpu_seconds": cost.cpu_seconds}


def plan_of_many() -> Iterator[Row]:
    """Yield the processor seconds of a plan for 2,048 systems on 128 hosts in 16 racks."""
    hosts = tuple(Host(f"{i:03}", f"host-{i}", 16, rack=f"rack-{i // 8:02}") for i in range(128))
    begin = process_time()
    placement = Placer(hosts).place(2048)
    roles = placement.roles(num_servers=16, num_workers=16)
    seconds = process_time() - begin
    yield {"num_csx": 2048, "hosts": len(roles), "seconds": seconds}


Goal = tuple[str, Callable[[float], bool], str]
"""Key of a row, whether its median is good enough, and the rule in words."""

GOALS: Mapping[str, Goal] = {
    "bytes": ("ratio", lambda value: value <= 1.1, "at most 1.1 of the least bytes"),
    "cpu": ("ratio", lambda value: value <= 1.25, "at most 1.25 of one host's"),
    "cpu_long": ("ratio", lambda value: value <= 1.25, "the same with 512 tokens for each sample"),
    "rate": ("ratio", lambda value: value >= 2.5, "at least 2.5 times that of the star"),
    "start": ("seconds", lambda value: value < 60, "32 systems in less than 60 s"),
    "slow": ("ratio", lambda value: value >= 1, "waits for the link cover the time that it costs"),
    "silent": ("noticed_s", lambda value: value <= 15, "a silent host ends the run within 15 s"),
    "resume": ("resumed_s", lambda value: value <= 30, "the same command goes on within 30 s"),
    "plan": ("seconds", lambda value: value < 1, "2,048 systems in less than 1 s"),
}


def verdict(figure: str, rows: Sequence[Row]) -> Row:
    """Return the value that counts and whether it reaches the goal: bytes count at their worst."""
    key, reaches, rule = GOALS[figure]
    values = [row[key] for row in rows]
    value = max(values) if figure == "bytes" else median(values)
    return {"goal": rule, "value": value, "reached": reaches(value)}


def measure(figures: Collection[str], steps: int, repeats: int) -> Iterator[tuple[str, Row]]:
    """Yield the rows of some figures as they are measured, each with the name of its figure."""
    if "plan" in figures:
        yield from (("plan", row) for row in plan_of_many())
    if "bytes" in figures:
        with cluster(2) as hosts:
            yield from (("bytes", row) for row in bytes_sent(hosts, steps))
    on_three: Mapping[str, Callable[[MiniatureHosts], Iterator[Row]]] = {
        "bytes": partial(bytes_sent, steps=steps),
        "cpu": partial(cpu_of_step, model=_WIDE, steps=steps, repeats=repeats),
        "cpu_long": partial(cpu_of_step, model=_LONG, steps=steps, repeats=repeats),
        "rate": partial(rate_on_slow_wires, steps=steps, repeats=repeats),
        "start": partial(start_of_many, repeats=repeats),
        "slow": lambda hosts: iter([slow_link(hosts)]),
    }
    wanted = [name for name in on_three if name in figures]
    if wanted:
        with cluster(3) as hosts:
            for name in wanted:
                yield from ((name, row) for row in on_three[name](hosts))

    if lost := [name for name in ("silent", "resume") if name in figures]:
        with cluster(3) as hosts:
            row = silent_host(hosts)
            yield from ((name, row) for name in lost)


@contextmanager
def cluster(count: int) -> Iterator[MiniatureHosts]:
    """Yield hosts with one idle Ray cluster over all."""
    with MiniatureHosts(count, cpus=[_CPUS_OF_HOST] * count) as hosts:
        hosts.start_ray()
        hosts.settle()
        yield hosts


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
