"""The contract of every link: order, contents, relays, memory and errors."""

import threading
import time
import uuid
from collections.abc import Iterator

import pytest
import torch

from swarmx.links import inbox
from swarmx.links.endpoint import Address, Endpoint
from swarmx.links.grpc import link as grpc_link
from swarmx.links.link import Link
from swarmx.links.tcp import streams
from swarmx.links.unix import link as unix_link
from tests.support.errors import raises
from tests.support.roles.envelopes import payload_of
from tests.support.roles.open_links import (
    KINDS,
    ON_OTHER_HOSTS,
    open_kind,
    opened,
    random_bytes,
    ready,
    released,
)
from waferstream.core.errors import (
    ApplianceDeadlockError,
    ApplianceResourceExhausted,
    ApplianceRuntimeServerError,
)
from waferstream.core.messages.messages import (
    Abort,
    Envelope,
    GradientReady,
    NormPartial,
    WeightsReady,
)
from waferstream.core.messages.reduce_order import Subtree
from waferstream.core.units import MIB

DTYPES = (
    torch.bfloat16,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)


@pytest.fixture(params=KINDS)
def links(request: pytest.FixtureRequest) -> Iterator[list[Link]]:
    """Roles a, b and c over each kind of link."""
    with opened(request.param, "a", "b", "c") as three:
        yield three


def test_messages_of_one_sender_arrive_in_order(links: list[Link]) -> None:
    """Each sender's messages come in the order they were sent, and none is lost or doubled."""
    a, b, c = (link.endpoint for link in links)
    for step in range(100):
        a.send(released("a", "c", step))
        b.send(released("b", "c", step))
    received = [c.receive(10) for _ in range(200)]
    for source in ("a", "b"):
        steps = [e.message.step for e in received if e.source == source]
        assert steps == list(range(100))


def test_messages_that_wait_are_counted(links: list[Link]) -> None:
    """Of all senders, and less those that were received."""
    a, b, c = (link.endpoint for link in links)
    assert c.num_waiting() == 0
    for step in range(3):
        a.send(released("a", "c", step))
        b.send(released("b", "c", step))
    deadline = time.monotonic() + 10
    while c.num_waiting() < 6 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert c.num_waiting() == 6
    c.receive(10)
    assert c.num_waiting() == 5


@pytest.mark.parametrize("kind", KINDS)
def test_messages_between_hosts_state_when_they_were_sent(kind: str) -> None:
    """Those in shared memory need not: nothing is on its way for long."""
    with opened(kind, "a", "b") as (a, b):
        a.endpoint.send(released("a", "b", 1))
        sent_ns = b.endpoint.receive(10).sent_ns
    assert (sent_ns > 0) == (kind in ("tcp", "grpc", ON_OTHER_HOSTS))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_payload_keeps_its_bits(links: list[Link], dtype: torch.dtype) -> None:
    """The receiver gets the bits of the sender, NaNs included."""
    a, b, _ = links
    content = random_bytes(4096)
    if dtype is torch.bool:
        content = content % 2
    a.endpoint.send(ready("a", "b", a, content.view(dtype)))
    view = payload_of(b.endpoint.receive(10)).view(dtype)
    assert view.dtype == dtype
    assert torch.equal(view.view(torch.uint8), content)


def test_large_payload_arrives(links: list[Link]) -> None:
    """32 MB and an odd byte go through in one message."""
    a, b, _ = links
    content = random_bytes(32 * MIB + 1)
    a.endpoint.send(ready("a", "b", a, content))
    assert torch.equal(payload_of(b.endpoint.receive(30)).view(torch.uint8), content)


def test_empty_payload_arrives(links: list[Link]) -> None:
    """A parameter without elements has an empty payload, in both directions."""
    a, b, _ = links
    for sender, receiver in ((a, b), (b, a)):
        slab = sender.arena.allocate(0)
        message = WeightsReady(0, 0, 0, slab)
        sender.endpoint.send(Envelope(sender.endpoint.name, receiver.endpoint.name, message))
        view = payload_of(receiver.endpoint.receive(10)).view(torch.float32)
        assert view.tolist() == []
        slab.free()


def test_large_message_arrives(links: list[Link]) -> None:
    """A message may be larger than any buffer of the link, without a payload."""
    a, b, _ = (link.endpoint for link in links)
    norms = tuple((position, position / 3) for position in range(20_000))
    a.send(Envelope("a", "b", NormPartial(1, 0, norms)))
    a.send(released("a", "b", 2))
    assert b.receive(10).message == NormPartial(1, 0, norms)
    assert b.receive(10).message.step == 2


def test_received_payload_can_be_relayed(links: list[Link]) -> None:
    """A role may forward a received payload without copying it."""
    a, b, c = links
    content = random_bytes(100_000)
    a.endpoint.send(ready("a", "b", a, content))
    payload = payload_of(b.endpoint.receive(10))
    subtree = Subtree(4, 2)
    b.endpoint.send(Envelope("b", "c", GradientReady(1, 2, 3, subtree, payload)))
    message = c.endpoint.receive(10).message
    assert isinstance(message, GradientReady)
    assert (message.step, message.round, message.bucket, message.subtree) == (1, 2, 3, subtree)
    assert torch.equal(message.payload.view(torch.uint8), content)


def test_role_can_send_to_itself(links: list[Link]) -> None:
    """The only weight server is its own peer in the norm exchange."""
    a = links[0].endpoint
    a.send(released("a", "a", 7))
    assert a.receive(10).message.step == 7


def test_live_slabs_are_aligned_and_disjoint(links: list[Link]) -> None:
    """Slabs start at multiples of 64 bytes and never share memory while both are held."""
    arena = links[0].arena
    slabs = [arena.allocate(size) for size in (1, 63, 64, 1000, 1000)]
    for value, slab in enumerate(slabs):
        slab.view(torch.uint8).fill_(value)
    for value, slab in enumerate(slabs):
        view = slab.view(torch.uint8)
        assert view.data_ptr() % 64 == 0
        assert len(view) == slab.num_bytes
        assert bool((view == value).all())


def test_slab_cannot_be_freed_twice(links: list[Link]) -> None:
    """A second free is refused: it would give the same memory to two owners."""
    slab = links[0].arena.allocate(64)
    slab.free()
    with pytest.raises(RuntimeError, match="freed twice"):
        slab.free()


def test_freed_memory_is_reused(links: list[Link]) -> None:
    """Repeated allocation and release need a bounded address space."""
    arena = links[0].arena
    places = set()
    for _ in range(50):
        slab = arena.allocate(8 * MIB)
        places.add(slab.view(torch.uint8).data_ptr())
        slab.free()
    assert len(places) < 10


def test_receive_timeout_is_a_deadlock_error(links: list[Link]) -> None:
    """Waiting longer than the limit names the role that waited."""
    with raises(ApplianceDeadlockError, "link-stalled") as caught:
        links[0].endpoint.receive(0.05)
    assert caught.value.where == "a"


def test_unknown_role_is_named(links: list[Link]) -> None:
    """A message to a role that is in no directory fails at once."""
    with raises(ApplianceRuntimeServerError, "unknown-role") as caught:
        links[0].endpoint.send(released("a", "nobody", 1))
    assert caught.value.value == "nobody"


def test_abort_ends_the_wait_for_a_peer_that_has_ended(links: list[Link]) -> None:
    """A role that waits for a connection would else hold up a recovery by its whole limit."""
    a, b, coordinator = (link.endpoint for link in links)
    b.close()
    coordinator.send(Envelope("c", "a", Abort(0)))
    with raises(ApplianceRuntimeServerError, "job-aborted"):
        a.send(released("a", "b", 3))


def test_closed_peer_is_noticed_after_its_last_message(links: list[Link]) -> None:
    """Messages sent before the close arrive; then the peers get an error."""
    a, b = links[0].endpoint, links[1].endpoint
    b.send(released("b", "a", 1))
    b.send(released("b", "a", 2))
    b.close()
    assert [a.receive(10).message.step for _ in range(2)] == [1, 2]
    for _ in range(2):
        with raises(ApplianceRuntimeServerError, "peer-gone") as caught:
            a.receive(10)
        assert (caught.value.where, caught.value.value) == ("a", "b")
    with raises(ApplianceRuntimeServerError, "peer-gone"):
        a.send(released("a", "b", 3))


@pytest.mark.parametrize("kind", KINDS)
def test_roles_that_flood_each_other_both_finish(kind: str) -> None:
    """Both send far more than any buffer holds before they read; neither waits for the other."""
    count = 3000

    def flood(endpoint: Endpoint, peer: str, received: list[int]) -> None:
        for step in range(count):
            endpoint.send(released(endpoint.name, peer, step))
        received.extend(endpoint.receive(30).message.step for _ in range(count))

    at_a: list[int] = []
    at_b: list[int] = []
    with opened(kind, "a", "b") as (a, b):
        other = threading.Thread(target=flood, args=(b.endpoint, "a", at_b))
        other.start()
        flood(a.endpoint, "b", at_a)
        other.join()
    assert at_a == at_b == list(range(count))


def test_queues_are_bounded(links: list[Link], monkeypatch: pytest.MonkeyPatch) -> None:
    """A role that is sent far more than credits allow gets an error, not all of the memory."""
    for module in (unix_link, grpc_link, inbox, streams):
        monkeypatch.setattr(module, "MOST_WAITING", 10)
    a, b = links[0].endpoint, links[1].endpoint
    with raises(ApplianceResourceExhausted, "queue-full"):
        try:
            for step in range(100):
                b.send(released("b", "a", step))
        except ApplianceRuntimeServerError:
            pass  # a was faster: its inbox is full, and it has ended the way from b
        else:
            norms = tuple((position, 1.0) for position in range(1000))
            for step in range(2000):  # while the way to b is full, a reads what waits
                a.send(Envelope("a", "b", NormPartial(step, 0, norms)))
        for _ in range(100):
            a.receive(10)


@pytest.mark.parametrize("kind", KINDS)
def test_peer_that_never_listens_is_unreachable(kind: str) -> None:
    """A peer that never listens is named when the start time-out is over."""
    link = open_kind(kind, "a", uuid.uuid4().hex, 0.3)
    try:
        nowhere = Address("127.0.0.1:1", "")
        link.endpoint.connect({"b": nowhere._replace(host="elsewhere", far=nowhere)})
        with raises(ApplianceRuntimeServerError, "peer-unreachable") as caught:
            link.endpoint.send(released("a", "b", 1))
        assert (caught.value.where, caught.value.value) == ("a", "b")
    finally:
        link.close()
