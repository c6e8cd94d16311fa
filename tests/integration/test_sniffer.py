"""What a stranger on the network of two hosts in miniature can read of a training under TLS."""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest
import torch

from benchmarks.hosts.miniature import MiniatureHosts
from benchmarks.hosts.network import refusal
from swarmx.links.certificates import make_authority, make_certificate
from tests.support.runs.tiny_training import init_config
from waferstream.checkpoint.reader import Reader
from waferstream.workload.models import build_model

pytestmark = [
    pytest.mark.ray,
    pytest.mark.nightly,
    pytest.mark.timeout(600),
    pytest.mark.skipif(refusal() is not None, reason=str(refusal())),
]

DRIVER = str(Path(__file__).with_name("hosts_driver.py"))
SESSION = re.compile(rb"waferstream-[0-9a-f]{32}")
SHOUT = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as peer:
    peer.sendall(bytes.fromhex(sys.argv[3]))
"""
LISTEN = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    print("listening", flush=True)
    peer, _ = server.accept()
    peer.recv(1 << 16)
"""
WINDOW_BYTES = 16
FEWEST_VALUES = 6  # different bytes in a window, else others may send it, too


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniatureHosts]:
    """Two hosts whose Ray is under TLS, too."""
    folder = tmp_path_factory.mktemp("tls")
    authority = make_authority("hosts", timedelta(days=1))
    names = ["10.77.0.1", "10.77.0.2", "127.0.0.1", "localhost"]
    made = make_certificate(authority, names, timedelta(days=1))
    (folder / "ca.pem").write_bytes(authority.certificate)
    (folder / "certificate.pem").write_bytes(made.certificate)
    (folder / "key.pem").write_bytes(made.key)
    environment = {
        "RAY_USE_TLS": "1",
        "RAY_TLS_SERVER_CERT": str(folder / "certificate.pem"),
        "RAY_TLS_SERVER_KEY": str(folder / "key.pem"),
        "RAY_TLS_CA_CERT": str(folder / "ca.pem"),
    }
    with MiniatureHosts(2, cpus=[2, 2], shared=[folder], environment=environment) as started:
        started.start_ray()
        yield started


def windows(weights: Mapping[str, torch.Tensor]) -> list[bytes]:
    """A few bytes out of each matrix of weights, in every dtype in which it may travel."""
    found = []
    for weight in weights.values():
        if weight.dim() > 1 and weight.std() > 0:
            for dtype in (torch.float32, torch.bfloat16, torch.float16):
                content = weight.detach().to(dtype).contiguous().flatten()
                middle = content[content.numel() // 2 :].view(torch.uint8)[:WINDOW_BYTES]
                found.append(bytes(middle.tolist()))
    return [window for window in found if len(set(window)) > FEWEST_VALUES]


def shout(hosts: MiniatureHosts, content: bytes) -> None:
    """Send bytes from the second host to the first one in clear."""
    place = [hosts.network.address(0), "5000"]
    with hosts.start(0, [sys.executable, "-c", LISTEN, *place]) as listener:
        assert listener.stdout is not None
        listener.stdout.readline()
        hosts.run(1, [sys.executable, "-c", SHOUT, *place, content.hex()])
        listener.communicate()


def test_sniffer_finds_no_weight_session_key_or_token(
    hosts: MiniatureHosts, tmp_path: Path
) -> None:
    """What is shouted in clear is found, so the sniffer hears everything."""
    init = init_config()
    first = dict(build_model(init.model.dump(), init.seed).named_parameters())
    order = {
        "runtime": {"address": "auto", "placement": "SPREAD"},
        "num_csx": 2,
        "save": "/tmp/model.mdl",
    }
    before = hosts.sent_bytes()
    with hosts.network.sniffing(tmp_path / "wire"):
        hosts.run(0, [sys.executable, DRIVER, json.dumps(order)])
        shout(hosts, b"shouted in clear")
    sent = sum(after - start for after, start in zip(hosts.sent_bytes(), before, strict=True))
    heard = (tmp_path / "wire").read_bytes()
    assert len(heard) >= sent
    assert b"shouted in clear" in heard
    last = Reader(hosts.folder(0) / "model.mdl")
    token = (hosts.folder(0).parent / "home" / ".ray" / "auth_token").read_bytes().strip()
    secrets = [token, *windows(first)]
    secrets += windows({name: torch.as_tensor(last[name]) for name in last.tensors})
    assert len(secrets) > 10
    assert not [secret for secret in secrets if secret in heard]
    assert SESSION.search(heard) is None
