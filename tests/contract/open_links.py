"""Links of roles that know each other, and what the tests send over them."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import get_args

import torch

from swarmx.links.link import Link, LinkKind
from tests.contract.echo_role import ON_OTHER_HOSTS, open_kind
from wsc.core.messages.messages import Envelope, WeightsReady, WeightsReleased

KINDS = (*get_args(LinkKind), ON_OTHER_HOSTS)


@contextmanager
def opened(kind: str, *roles: str) -> Iterator[list[Link]]:
    """Links of roles in this process that know each other."""
    session = uuid.uuid4().hex
    with ExitStack() as stack:
        links = []
        for role in roles:
            links.append(open_kind(kind, role, session, 10))
            stack.callback(links[-1].close)
        directory = {link.endpoint.name: link.endpoint.address for link in links}
        for link in links:
            link.endpoint.connect(directory)
        yield links


def ready(source: str, target: str, link: Link, content: torch.Tensor, step: int = 0) -> Envelope:
    slab = link.arena.allocate(content.nbytes)
    slab.view(content.dtype).copy_(content)
    return Envelope(source, target, WeightsReady(step, 0, 0, slab))


def released(source: str, target: str, step: int) -> Envelope:
    return Envelope(source, target, WeightsReleased(step, 0, 0))


def random_bytes(num_bytes: int) -> torch.Tensor:
    return torch.randint(0, 256, (num_bytes,), dtype=torch.uint8)
