"""Measure the links between roles: bytes per second, and processor time for each gigabyte.

    python -m benchmarks.links --json benchmarks/results/links.json

Two processes of this host: one sends weights, the other gives their credits, as a weight server and
a switch do. Trials of the links alternate, so that other work on the host meets all of them.
``bound`` is TCP in clear text without messages: what a link between hosts cannot beat. The work
to encode and decode a message without payload is measured apart.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import socket
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from statistics import median
from time import perf_counter, process_time
from typing import cast

import torch

from swarmx.links.link import LinkKind, open_link
from swarmx.links.wire.messages import decode_header, encode_header, envelope_of
from waferstream.core.messages.messages import (
    Envelope,
    GradientReleased,
    WeightsReady,
    WeightsReleased,
)
from waferstream.core.messages.reduce_order import Subtree
from waferstream.core.units import MIB, aligned
from waferstream.host.files import write_json
from waferstream.reports.benchmark import new_file, new_result, positive

_KINDS: tuple[LinkKind, ...] = ("shared_memory", "tcp", "grpc")
_IN_FLIGHT = 3  # payloads sent before the first credit
_TIMEOUT_S = 120.0
_GB = 1e9


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write JSON; return the exit status."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    result = new_result("bytes per second and processor time of links between roles")
    trials: dict[str, list[dict[str, float]]] = {kind: [] for kind in (*_KINDS, "bound")}
    for _ in range(options.repeats):
        for kind, measured in trials.items():
            measured.append(_trial(kind, options.payload_mib * MIB, options.payloads))
            print(", ".join(_cells(kind, measured[-1])), flush=True)
    result["trials"] = trials
    result["median"] = {
        kind: {key: median(trial[key] for trial in measured) for key in measured[0]}
        for kind, measured in trials.items()
    }
    result["us_per_message"] = _message_us()
    print("\nmedians:")
    print("\n".join(aligned([_cells(kind, found) for kind, found in result["median"].items()])))
    print(f"a message without payload: {result['us_per_message']:.1f} us of processor time")
    if options.json:
        write_json(options.json, result)
    return 0


def _cells(kind: str, found: dict[str, float]) -> tuple[str, ...]:
    cpu_s = f"{found['cpu_s_per_gb']:.3f} s of processor time per GB"
    return kind, f"{found['gb_per_s']:.2f} GB/s", cpu_s


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=new_file, help="write the result to this file")
    parser.add_argument("--repeats", type=positive, default=5, help="trials of each link")
    parser.add_argument("--payload_mib", type=positive, default=16, help="size of a payload")
    parser.add_argument("--payloads", type=positive, default=64, help="payloads of a trial")
    return parser


def _trial(kind: str, num_bytes: int, count: int) -> dict[str, float]:
    """Send payloads from another process to this one; return speed and processor time."""
    here, there = multiprocessing.Pipe()
    send, receive = (_send_plain, _receive_plain) if kind == "bound" else (_send, _receive)
    process = multiprocessing.get_context("spawn").Process(
        target=send, args=(there, kind, num_bytes, count), daemon=True
    )
    process.start()
    try:
        seconds, cpu_s = receive(here, kind, num_bytes, count)
        cpu_s += here.recv()
    finally:
        process.join(_TIMEOUT_S)
    gigabytes = num_bytes * count / _GB
    return {"gb_per_s": gigabytes / seconds, "cpu_s_per_gb": cpu_s / gigabytes}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _send(pipe: Connection, kind: str, num_bytes: int, count: int) -> None:
    torch.set_num_threads(1)
    link = open_link(cast(LinkKind, kind), "wgt-0", "benchmark")
    pipe.send(link.endpoint.address)
    link.endpoint.connect({"wgt-0": link.endpoint.address, "br-0": pipe.recv()})
    slab = link.arena.allocate(num_bytes)
    slab.view(torch.uint8).fill_(1)
    link.endpoint.receive(_TIMEOUT_S)
    start_s = _cpu_s()
    for step in range(count):
        if step >= _IN_FLIGHT:
            link.endpoint.receive(_TIMEOUT_S)
        link.endpoint.send(Envelope("wgt-0", "br-0", WeightsReady(step, 0, 0, slab)))
    for _ in range(min(count, _IN_FLIGHT)):
        link.endpoint.receive(_TIMEOUT_S)
    pipe.send(_cpu_s() - start_s)
    pipe.recv()
    link.close()


def _receive(pipe: Connection, kind: str, _num_bytes: int, count: int) -> tuple[float, float]:
    link = open_link(cast(LinkKind, kind), "br-0", "benchmark")
    try:
        link.endpoint.connect({"br-0": link.endpoint.address, "wgt-0": pipe.recv()})
        pipe.send(link.endpoint.address)
        link.endpoint.send(Envelope("br-0", "wgt-0", WeightsReleased(0, 1, 0)))
        start_s, start_cpu_s = perf_counter(), _cpu_s()
        for _ in range(count):
            message = link.endpoint.receive(_TIMEOUT_S).message
            released = WeightsReleased(message.step, 0, 0)
            link.endpoint.send(Envelope("br-0", "wgt-0", released))
        return perf_counter() - start_s, _cpu_s() - start_cpu_s
    finally:
        pipe.send(None)
        link.close()


def _send_plain(pipe: Connection, _kind: str, num_bytes: int, count: int) -> None:
    content = bytes(num_bytes)
    with socket.create_connection(("127.0.0.1", pipe.recv())) as connection:
        start_s = _cpu_s()
        for _ in range(count):
            connection.sendall(content)
        pipe.send(_cpu_s() - start_s)


def _receive_plain(pipe: Connection, _kind: str, num_bytes: int, count: int) -> tuple[float, float]:
    content = memoryview(bytearray(num_bytes))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pipe.send(listener.getsockname()[1])
        connection, _ = listener.accept()
        with connection:
            start_s, start_cpu_s = perf_counter(), _cpu_s()
            for _ in range(count):
                filled = 0
                while filled < num_bytes:
                    filled += connection.recv_into(content[filled:])
            return perf_counter() - start_s, _cpu_s() - start_cpu_s


def _messages() -> list[Envelope]:
    """Return the messages without payload of a bucket: credits of weights and gradients."""
    return [
        Envelope("csx-0", "br-0", WeightsReleased(100, 2, 7)),
        Envelope("br-0", "csx-0", GradientReleased(100, 2, 7, Subtree(8, 3))),
    ]


def _message_us(repeats: int = 5000) -> float:
    """Return the microseconds of processor time to encode and decode a message, least of three."""
    messages, found = _messages(), []
    for _ in range(3):
        start_s = process_time()
        for _ in range(repeats):
            for envelope in messages:
                envelope_of(decode_header(encode_header(envelope))[0], None)
        found.append((process_time() - start_s) / repeats / len(messages))
    return 1e6 * min(found)


if __name__ == "__main__":
    sys.exit(main())
