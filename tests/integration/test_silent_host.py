"""A link between two hosts in miniature, of which one falls silent."""

import sys
from pathlib import Path

import pytest

from benchmarks.hosts.miniature import MiniatureHosts
from benchmarks.hosts.network import refusal

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(120),
    pytest.mark.skipif(refusal() is not None, reason=str(refusal())),
]

ROLE = str(Path(__file__).with_name("linked_role.py"))


@pytest.mark.parametrize("kind", ["auto", "tcp", "grpc"])
def test_silent_host_is_noticed(tmp_path: Path, kind: str) -> None:
    """Two hosts share no memory, so ``auto`` takes the network; no byte says that one is lost.

    A role that does not notice loses its patience instead, with another code.
    """
    with MiniatureHosts(2, shared=[tmp_path]) as hosts:
        roles = [
            hosts.start(
                host,
                [sys.executable, ROLE, kind, hosts.network.address(host), *names, str(tmp_path)],
            )
            for host, names in enumerate((("a", "b"), ("b", "a")))
        ]
        outputs = [role.stdout for role in roles]
        assert [output.readline() for output in outputs if output] == ["linked\n"] * 2
        hosts.network.cut(1)
        assert outputs[0] is not None
        assert outputs[0].readline() == "peer-gone b\n"
        for role in roles:
            role.kill()
            role.communicate()
