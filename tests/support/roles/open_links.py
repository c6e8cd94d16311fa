"""Links of roles that know each other, and what the tests send over them."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, cast, get_args

import torch

from swarmx.links.endpoint import Address
from swarmx.links.link import Link, LinkKind, open_link
from waferstream.core.messages.messages import Envelope, WeightsReady, WeightsReleased

ON_OTHER_HOSTS = "auto between hosts"
"""The link ``auto``, where no role shares memory with another."""

KINDS = (*get_args(LinkKind), ON_OTHER_HOSTS)


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
