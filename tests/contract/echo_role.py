"""A process with one role that returns every payload to its sender, byte for byte.

Started as ``python echo_role.py <link kind> <session>``; prints its address as JSON, reads the directory
as one line of JSON, and serves until its peer closes. ``GradientReady`` is returned as it is, so
the payload is relayed; ``WeightsReady`` is copied into a slab of its own.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any, cast

import torch

from swarmx.links.endpoint import Address
from swarmx.links.link import Link, LinkKind, open_link
from wsc.core.errors import ApplianceRuntimeServerError
from wsc.core.messages.messages import Envelope, Message, WeightsReady

NAME = "echo"
ON_OTHER_HOSTS = "auto between hosts"
"""The link ``auto``, where no role shares memory with another."""


def open_kind(kind: str, role: str, session: str, timeout_s: float = 60.0) -> Link:
    """Open a link of any kind, or ``ON_OTHER_HOSTS``."""
    return open_link(
        "auto" if kind == ON_OTHER_HOSTS else cast(LinkKind, kind),
        role,
        session,
        start_timeout_s=timeout_s,
        stall_timeout_s=timeout_s,
        memory=role if kind == ON_OTHER_HOSTS else None,
    )


def read_address(fields: Sequence[Any]) -> Address:
    """Return an address that was written as JSON."""
    place, identity, host, far = fields
    return Address(place, identity, host, None if far is None else read_address(far))


def answer(message: Message, link: Link) -> Message:
    if not isinstance(message, WeightsReady):
        return message
    slab = link.arena.allocate(message.payload.num_bytes)
    slab.view(torch.uint8).copy_(message.payload.view(torch.uint8))
    return WeightsReady(message.step, message.round, message.bucket, slab)


def serve(kind: str, session: str) -> None:
    link = open_kind(kind, NAME, session)
    print(json.dumps(link.endpoint.address), flush=True)
    given = json.loads(sys.stdin.readline())
    link.endpoint.connect({role: read_address(address) for role, address in given.items()})
    try:
        while True:
            got = link.endpoint.receive(60.0)
            link.endpoint.send(Envelope(NAME, got.source, answer(got.message, link)))
    except ApplianceRuntimeServerError:
        link.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve(sys.argv[1], sys.argv[2])
