"""Every section of cluster.yaml is optional and must be a mapping."""

from pathlib import Path

import pytest

from appliance.spec import ClusterSpec, RuntimeSpec, load_cluster
from tests.support.errors import raises
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError


@pytest.mark.parametrize("text", ["machine:\n", "machine:\nruntime:\n", "runtime: {kind: ray}\n"])
def test_empty_cluster_section_keeps_defaults(tmp_path: Path, text: str) -> None:
    """An empty section keeps all defaults."""
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    assert load_cluster(path) == ClusterSpec()


@pytest.mark.parametrize("count", [-1, 10**9])
def test_activation_servers_beyond_a_cluster_are_refused(tmp_path: Path, count: int) -> None:
    """Before any is started."""
    path = tmp_path / "cluster.yaml"
    path.write_text(f"runtime: {{activation_servers: {count}}}\n")
    with raises(ConfigError, "out-of-range"):
        load_cluster(path)


def test_cluster_section_that_is_not_a_mapping_is_refused(tmp_path: Path) -> None:
    """The error names key and file."""
    path = tmp_path / "cluster.yaml"
    path.write_text("machine: CS-2\n")
    with raises(ConfigError, "wrong-type") as caught:
        load_cluster(path)
    assert caught.value.where == str(path)
    assert "'machine'" in caught.value.what


def test_tls_needs_a_link_between_hosts() -> None:
    """Certificates that no link would use are refused, not ignored."""
    files = {"ca": "ca.pem", "certificate": "certificate.pem", "key": "key.pem"}
    network = {"link": "grpc", "tls": files}
    assert validate(RuntimeSpec, network, "").tls is not None
    assert validate(RuntimeSpec, {"address": "auto", "tls": files}, "").tls is not None
    within = {"address": "auto", "link": "shared_memory", "tls": files}
    for other in ({"tls": files}, {**network, "kind": "local"}, within):
        with raises(ConfigError, "tls-without-network"):
            validate(RuntimeSpec, other, "")


def test_auto_link_listens_on_no_network_with_a_private_ray() -> None:
    """All roles are on one host there; a joined cluster may have others."""
    assert RuntimeSpec().carrier == "shared_memory"
    assert RuntimeSpec(address="auto").carrier == "auto"
    assert RuntimeSpec(link="tcp").carrier == "tcp"
