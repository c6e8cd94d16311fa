"""Links of a role, one after the other: an attempt that is over leaves nothing behind."""

import gc
import os
import pickle
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch

from swarmx.links.link import open_link
from swarmx.links.memory import SharedArena, SharedPayload
from tests.support.roles.envelopes import payload_of
from waferstream.core.messages.messages import Envelope, WeightsReady
from waferstream.core.messages.payload import Arena


class Held(NamedTuple):
    """What this process holds of the kernel."""

    descriptors: int
    blocks: int


def held() -> Held:
    maps = Path("/proc/self/maps").read_text()
    return Held(len(os.listdir("/proc/self/fd")), maps.count("/memfd:waferstream"))


@contextmanager
def peer_process() -> Iterator[SharedPayload]:
    """A payload of another process, which is killed at the end."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, pickle.dumps(SharedArena().allocate(1000).place))
            signal.pause()
        finally:
            os._exit(0)
    try:
        yield pickle.loads(os.read(reader, 1 << 16))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)


def attempt(number: int, arenas: dict[str, Arena]) -> None:
    """Exchange a payload of each role and one of a process that is lost, then end the links."""
    links = {
        role: open_link("shared_memory", role, f"{os.getpid()}.{number}", arena=arenas.get(role))
        for role in ("a", "b")
    }
    directory = {role: link.endpoint.address for role, link in links.items()}
    for link in links.values():
        link.endpoint.connect(directory)
    with peer_process() as passed_on:
        for source, target in (("a", "b"), ("b", "a")):
            for payload in (links[source].arena.allocate(1000), passed_on):
                message = WeightsReady(number, 0, 0, payload)
                links[source].endpoint.send(Envelope(source, target, message))
                arrived = links[target].endpoint.receive(10)
                assert payload_of(arrived).view(torch.uint8).numel() == 1000
    arenas |= {role: link.retire() for role, link in links.items()}


def test_attempts_leave_no_descriptor_and_no_block() -> None:
    """Also not where every attempt loses a process whose memory it has read."""
    arenas: dict[str, Arena] = {}
    attempt(0, arenas)
    gc.collect()  # what other tests have left
    before = held()
    for number in range(1, 20):
        attempt(number, arenas)
    assert held() == before
