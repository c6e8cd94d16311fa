"""The contract of every link between two processes."""

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from swarmx.links.link import Link
from tests.support.errors import raises
from tests.support.roles.envelopes import payload_of
from tests.support.roles.open_links import (
    KINDS,
    open_kind,
    random_bytes,
    read_address,
    ready,
    released,
)
from waferstream.core.errors import ApplianceRuntimeServerError
from waferstream.core.messages.messages import Envelope, GradientReady
from waferstream.core.messages.reduce_order import Subtree
from waferstream.core.units import MIB

ROOT = Path(__file__).parents[2]


@contextmanager
def echo_process(kind: str) -> Iterator[tuple[Link, subprocess.Popen[str]]]:
    """Yield a link of this process and the process of its peer ``echo``."""
    session = uuid.uuid4().hex
    command = [sys.executable, "-m", "tests.contract.echo_role", kind, session]
    link = open_kind(kind, "a", session, 30)
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            directory = {
                "echo": read_address(json.loads(process.stdout.readline())),
                "a": link.endpoint.address,
            }
            print(json.dumps(directory), file=process.stdin, flush=True)
            link.endpoint.connect(directory)
            yield link, process
        finally:
            link.close()
            process.kill()


def check_bits(echo: Link) -> None:
    """Every byte is the same after another process has copied and returned it."""
    content = random_bytes(3 * MIB + 5)
    echo.endpoint.send(ready("a", "echo", echo, content))
    assert torch.equal(payload_of(echo.endpoint.receive(30)).view(torch.uint8), content)


def check_relay(echo: Link) -> None:
    """A payload returns through a process that only forwards it."""
    content = random_bytes(3 * MIB)
    slab = echo.arena.allocate(content.nbytes)
    slab.view(torch.uint8).copy_(content)
    echo.endpoint.send(Envelope("a", "echo", GradientReady(1, 1, 1, Subtree(0, 1), slab)))
    returned = payload_of(echo.endpoint.receive(30))
    assert torch.equal(returned.view(torch.uint8), content)


def check_flood(echo: Link) -> None:
    """Thousands of messages sent before the first answer is read come back in order."""
    for step in range(3000):
        echo.endpoint.send(released("a", "echo", step))
    steps = [echo.endpoint.receive(30).message.step for _ in range(3000)]
    assert steps == list(range(3000))


@pytest.mark.parametrize("kind", KINDS)
def test_process_returns_all_until_it_is_killed(kind: str) -> None:
    """Payloads keep their bits and a flood its order; a killed peer ends the wait, with its name."""
    with echo_process(kind) as (link, process):
        check_bits(link)
        check_relay(link)
        check_flood(link)
        process.kill()
        with raises(ApplianceRuntimeServerError, "peer-gone") as caught:
            link.endpoint.receive(30)
        assert (caught.value.where, caught.value.value) == ("a", "echo")
