"""A process with one role that returns every payload to its sender, byte for byte.

Started as ``python -m tests.contract.echo_role <link kind> <session>``; prints its address as JSON,
reads the directory as one line of JSON, and serves until its peer closes. ``GradientReady`` is
returned as it is, so the payload is relayed; ``WeightsReady`` is copied into a slab of its own.
"""

import json
import sys

import torch

from swarmx.links.link import Link
from tests.support.roles.open_links import open_kind, read_address
from waferstream.core.errors import ApplianceRuntimeServerError
from waferstream.core.messages.messages import Envelope, Message, WeightsReady

NAME = "echo"


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
