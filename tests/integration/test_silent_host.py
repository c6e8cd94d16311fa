"""A link between two hosts in miniature, of which one falls silent."""

import sys
import time
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
MOST_SILENT_S = 14.0  # 9 s of TCP's keepalive, 10 s of gRPC's, and a busy computer


@pytest.mark.parametrize("kind", ["auto", "tcp", "grpc"])
def test_silent_host_is_noticed(tmp_path: Path, kind: str) -> None:
    """Two hosts share no memory, so ``auto`` takes the network; no byte says that one is lost."""
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
        start_s = time.monotonic()
        assert outputs[0] is not None
        assert outputs[0].readline() == "peer-gone b\n"
        assert time.monotonic() - start_s < MOST_SILENT_S
        for role in roles:
            role.kill()
            role.communicate()
