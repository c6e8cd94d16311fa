"""Programs come in with a token of the same version, one at a time, and leave nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.coordinator.commands import CountFailures, HashWeights, RestoreCheckpoint, Run
from appliance.elaboration.elaborate import ClusterSize
from appliance.plan import ClusterPlan
from appliance.remote import cluster as remote_cluster
from appliance.remote import connection as connections
from appliance.remote.access import Access, new_access
from appliance.remote.cluster import RemoteCluster, start_remote
from appliance.remote.commands import Start
from appliance.remote.connection import Connection, described
from appliance.remote.host import ClusterHost
from appliance.remote.server import serving
from appliance.spec import ClusterSpec, RuntimeSpec
from tests.support.errors import raises
from tests.support.host.attached import lent
from waferstream.core.errors import (
    ApplianceRuntimeServerError,
    ApplianceUnknownError,
    ApplianceVersionError,
    ClusterJobInitError,
    ClusterJobScheduleError,
    ConfigError,
    NotFiniteStepError,
    RequestRefused,
)
from waferstream.core.program.program import ProgramKind

SPEC = ClusterSpec(runtime=RuntimeSpec(kind="local"))
PLAN = ClusterPlan((), ClusterSize(num_csx=1, num_servers=1, num_workers=1), SPEC, seed=0)


class Marked:
    """A cluster that answers what a test needs, and says when it ends."""

    def __init__(self) -> None:
        self.has_ended = threading.Event()
        self.goes_on = threading.Event()

    def do(self, command: Any) -> Any:
        match command:
            case HashWeights():
                raise NotFiniteStepError("not finite", code="loss-not-finite", step=7)
            case CountFailures():
                raise ZeroDivisionError
            case RestoreCheckpoint(path):
                assert path.read_bytes() == b"content"
            case Run():
                self.goes_on.wait(20)
        return None

    def newest_step(self) -> int:
        return 5

    def shutdown(self) -> None:
        self.has_ended.set()


@pytest.fixture
def marked() -> Marked:
    return Marked()


@pytest.fixture
def access(marked: Marked, monkeypatch: pytest.MonkeyPatch) -> Iterator[Access]:
    monkeypatch.setattr(remote_cluster, "_BEAT_S", 0.05)
    with lent(SPEC, lease_s=1.0, start=lambda plan: marked) as access:
        yield access


@pytest.fixture
def cluster(access: Access) -> Iterator[RemoteCluster]:
    cluster = start_remote(access, PLAN)
    yield cluster
    cluster.shutdown()


def test_server_describes_its_machine_in_numbers_of_its_host(access: Access) -> None:
    runtime = described(access).cluster.runtime
    assert runtime.kind == "local"
    assert "auto" not in (runtime.cores, runtime.activation_memory)


def test_wrong_token_is_refused(access: Access) -> None:
    with raises(RequestRefused, "key-unknown"):
        described(access.model_copy(update={"token": "x" * 43}))


def test_other_certificate_is_not_talked_to(access: Access) -> None:
    stranger, _ = new_access(access.address)
    with raises(ClusterJobInitError, "cluster-not-found"):
        described(access.model_copy(update={"certificate": stranger.certificate}))


def test_other_version_is_refused(access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "VERSIONS", "0.1 on Python 3.9")
    with raises(ApplianceVersionError, "version-mismatch"):
        described(access)


def test_address_without_server_is_an_error() -> None:
    access, _ = new_access("127.0.0.1:9")
    with raises(ClusterJobInitError, "cluster-not-found"):
        described(access)


def test_address_that_is_taken_is_an_error(access: Access) -> None:
    port = access.address.rpartition(":")[2]
    with (
        raises(ClusterJobInitError, "address-unavailable"),
        serving(ClusterHost(SPEC, 1.0), f"127.0.0.1:{port}", 1.0),
    ):
        pass


def test_second_program_is_refused_until_the_first_has_left(
    access: Access, cluster: RemoteCluster, marked: Marked
) -> None:
    with raises(ClusterJobScheduleError, "cluster-taken"):
        start_remote(access, PLAN)
    cluster.shutdown()
    start_remote(access, PLAN).shutdown()
    assert marked.has_ended.wait(5)


def test_errors_keep_their_class_and_their_fields(cluster: RemoteCluster) -> None:
    with raises(NotFiniteStepError, "loss-not-finite") as caught:
        cluster.do(HashWeights())
    assert caught.value.step == 7
    with raises(ApplianceUnknownError, "remote-failure"):
        cluster.do(CountFailures())


def test_newest_step_comes_with_the_beats(cluster: RemoteCluster) -> None:
    waiting = threading.Event()
    while cluster.newest_step() != 5:
        assert not waiting.wait(0.01)


def test_file_travels_with_its_command(cluster: RemoteCluster, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.mdl"
    path.write_bytes(b"content")
    cluster.do(RestoreCheckpoint(path, ("model",), strict=True))


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "..", ".", "", "a/b", "a\0b"])
def test_file_must_stay_in_the_folder_of_the_program(name: str) -> None:
    with raises(ConfigError, "path-escapes"):
        ClusterHost(SPEC, lease_s=1.0).path("session", name)


def test_program_that_vanishes_loses_its_cluster(access: Access, marked: Marked) -> None:
    connection = Connection(access)
    RemoteCluster(connection, 1.0)._has_ended.set()  # it beats no more, and says no farewell
    connection.beat()
    connection.do(Start(PLAN), lambda call: None)
    assert not marked.has_ended.is_set()
    assert marked.has_ended.wait(10)
    connection.close()


def test_cluster_without_answer_is_lost(marked: Marked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_cluster, "_BEAT_S", 0.05)
    with lent(SPEC, lease_s=1.0, start=lambda plan: marked) as access:
        cluster = start_remote(access, PLAN)
        ending = threading.Timer(0.2, marked.goes_on.set)
        ending.start()
        cluster.do(Run(ProgramKind.TRAIN, 1, 1))
    with raises(ApplianceRuntimeServerError, "connection-lost"):
        cluster.do(Run(ProgramKind.TRAIN, 2, 2))
    cluster.shutdown()
    with raises(ApplianceRuntimeServerError, "cluster-ended"):
        cluster.do(HashWeights())
