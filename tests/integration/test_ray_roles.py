"""Roles on a real Ray instance: jobs, failures that name the right role, and cleanup."""

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import ray

from appliance.health.pulse import Activity, Pulse
from appliance.placement.placer import Host, Placer
from appliance.ray.connection.connection import enter
from appliance.ray.coordinator import RayHosted
from appliance.ray.forks import fork_server
from appliance.ray.hosts.places import Places
from appliance.ray.hosts.pulses import Presence, RemoteHosts
from appliance.ray.roles import RayRoles
from appliance.role_group import GroupSpec
from appliance.spec import RuntimeSpec
from swarmx.links.link import LinkKind
from tests.support.errors import raises
from tests.support.host.processes import command_of, descendants, running, wait_for_end
from waferstream.core.errors import (
    ApplianceDeadlockError,
    ApplianceRuntimeServerError,
    ClusterJobInitError,
    ConfigError,
)
from waferstream.core.roles.names import node_name
from waferstream.core.roles.role import Job, RoleSpec

sys.path.append(str(Path(__file__).parent))  # where actors, too, will look for toy_roles
from toy_roles import FOREVER, Fail, Greet, Play, PlayerSpec, ReadPids, Umpire, players

from waferstream.core.program.program import ProgramKind

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

RALLY = Job(ProgramKind.TRAIN, 1, 50)
NORMS = {step: 1000.0 * step for step in range(1, 101)}  # of all strokes of a rally


@pytest.fixture(scope="module")
def instance() -> Iterator[None]:
    """One private Ray instance for the tests that do not look at how it ends."""
    enter(RuntimeSpec())
    yield
    ray.shutdown()


@contextmanager
def roles_of(
    specs: Sequence[RoleSpec], runtime: RuntimeSpec | None = None
) -> Iterator[tuple[RayRoles, list[int]]]:
    """Roles, and the ids of their processes."""
    roles = RayRoles(specs, runtime or RuntimeSpec(), uuid.uuid4().hex)
    try:
        yield roles, [presence.pid for presence in roles.presences.values()]
    finally:
        roles.shutdown()


def pulses_from_elsewhere(presences: dict[str, Presence]) -> dict[str, Pulse | None]:
    """The pulses as a task of Ray on the roles' host sees them, which needs a while to start."""
    hosts, deadline = RemoteHosts(), time.monotonic() + 30
    while not (pulses := hosts.look(presences)) and time.monotonic() < deadline:
        pass
    return pulses


def named_shared_memory(pid: int) -> set[str]:
    """Shared memory of a process that would outlive it, for it has a name."""
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line for line in maps if "/dev/shm/" in line and not line.endswith("(deleted)")}


def sockets() -> str:
    return Path("/proc/net/unix").read_text()


def test_private_ray_instance_leaves_nothing() -> None:
    """Shutdown also ends a Ray instance that the roles started: no process, memory or name."""
    with roles_of(players()) as (roles, pids):
        roles.run(RALLY)
        tree = descendants(os.getpid())
        assert tree > set(pids)
        assert not set().union(*map(named_shared_memory, pids))
        address = roles.presences["a"].address.place
        assert address in sockets()
    assert not ray.is_initialized()
    fork_server.stop()  # else it stays for the next cluster
    assert wait_for_end(tree, timeout_s=10) == set()
    assert address not in sockets()


@dataclass(frozen=True)
class Interrupted:
    """What was seen of a program that was interrupted in the midst of a job of its roles."""

    niceness: set[int]  # of all processes below the program
    last_words: str
    code: int
    left: set[int]  # processes that were below the program, 10 s after its end


@pytest.fixture(scope="module")
def interrupted() -> Interrupted:
    """Start a program as a user starts it, and send Ctrl-C to its process alone."""
    script = Path(__file__).with_name("ray_driver.py")
    command = [sys.executable, str(script), uuid.uuid4().hex]
    variables = {name: each for name, each in os.environ.items() if name != "RAY_worker_niceness"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=variables
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "ready\n"
        tree = descendants(driver.pid)
        niceness = {os.getpriority(os.PRIO_PROCESS, pid) for pid in tree}
        driver.send_signal(signal.SIGINT)
        last_words = driver.stdout.read()
        code = driver.wait(30)
    return Interrupted(niceness, last_words, code, wait_for_end(tree, timeout_s=10))


def test_interrupt_ends_every_process(interrupted: Interrupted) -> None:
    """Ctrl-C in the user's process, in the midst of a job, ends the whole tree below it."""
    assert (interrupted.last_words, interrupted.code) == ("ended\n", 0)
    assert interrupted.left == set()


@pytest.mark.nightly
def test_killed_program_leaves_no_process() -> None:
    """kill -9 of the user's process, in the midst of a job, ends the tree below it at once."""
    script = Path(__file__).with_name("ray_driver.py")
    command = [sys.executable, str(script), uuid.uuid4().hex]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "ready\n"
        tree = descendants(driver.pid)
        driver.kill()
    assert wait_for_end(tree, timeout_s=3) == set()


def test_roles_have_the_priority_of_the_program(interrupted: Interrupted) -> None:
    """Ray would run them at nice 15, where any other work on the host takes their processor."""
    assert interrupted.niceness == {os.getpriority(os.PRIO_PROCESS, 0)}


@pytest.mark.parametrize("link", ["shared_memory", "grpc"])
def test_ray_roles_run_one_job_after_another(instance: None, link: LinkKind) -> None:
    """Two roles exchange a hundred payloads per job, over each link, and are ready for the next."""
    with roles_of(players(), RuntimeSpec(link=link)) as (roles, pids):
        for _ in range(2):
            reports = roles.run(RALLY)
            assert [report.role for report in reports] == ["a", "b"]
            assert reports[0].norms | reports[1].norms == NORMS
        assert roles.do(["b"], Greet("hello")) == {"b": "hello from b"}
    assert running(pids) == set()
    roles.shutdown()


def test_domain_error_keeps_its_type_and_fields(instance: None) -> None:
    """What a role raises reaches the user with its own type and fields."""
    with roles_of(players("domain error")) as (roles, _):
        with raises(ConfigError, "no-such-stroke") as caught:
            roles.run(RALLY)
        assert type(caught.value) is ConfigError
        assert (caught.value.where, caught.value.value) == ("b", "lob")


def test_error_while_a_role_is_built_ends_the_start(instance: None) -> None:
    """A role that cannot be built leaves no other role behind."""
    before = descendants(os.getpid())
    with raises(ConfigError, "unbuildable"):
        RayRoles(players("unbuildable"), RuntimeSpec(), uuid.uuid4().hex)
    mine = {pid for pid in descendants(os.getpid()) - before if b"RoleActor" in command_of(pid)}
    assert mine == set()


def test_defect_names_the_role_and_its_log(instance: None) -> None:
    """A foreign exception names the role where it happened and the log to read."""
    with roles_of(players("defect")) as (roles, _):
        with raises(ApplianceRuntimeServerError, "role-failed") as caught:
            roles.run(RALLY)
        assert caught.value.value == "ZeroDivisionError('a defect')"
        assert str(caught.value.where).startswith("b,")
        assert Path(str(caught.value.where).rpartition("log: ")[2]).is_file()


def test_dead_role_is_named_not_its_neighbour(instance: None) -> None:
    """Of a role that died and one that lost its link to it, the dead one is named."""
    with roles_of(players("dies")) as (roles, _):
        with raises(ApplianceRuntimeServerError, "role-died") as caught:
            roles.run(RALLY)
        assert str(caught.value.where).startswith("b,")
        assert Path(str(caught.value.where).rpartition("log: ")[2]).is_file()


def matches(mood: str) -> list[GroupSpec]:
    """Two matches, the players of each side in one process; the second fails in one of them."""
    servers, others = zip(*(players(mood, prefix) for prefix in ("1", "2")), strict=True)
    return [GroupSpec(servers), GroupSpec(others)]


def test_roles_that_share_a_process_finish_a_job(instance: None) -> None:
    with roles_of(matches("fair")) as (roles, pids):
        reports = roles.run(RALLY)
        assert len(pids) == 2
        for of_match in ("1", "2"):
            norms = [report.norms for report in reports if report.role.startswith(of_match)]
            assert norms[0] | norms[1] == NORMS


def test_all_roles_of_a_dead_process_are_named(instance: None) -> None:
    with roles_of(matches("dies")) as (roles, _):
        with raises(ApplianceRuntimeServerError, "role-died") as caught:
            roles.run(RALLY)
        assert caught.value.what.startswith("1b, 2b ")
        assert str(caught.value.where).startswith("1b, 2b,")


def test_all_roles_of_a_process_that_hangs_or_waits_are_named(instance: None) -> None:
    with roles_of(matches("hangs"), RuntimeSpec(stall_timeout_s=6)) as (roles, _):
        with raises(ApplianceDeadlockError, "role-stalled") as caught:
            roles.run(RALLY)
        assert caught.value.where == "1b, 2b"
        assert str(caught.value.value).endswith("waiting for it: 1a, 2a")


def test_stopped_role_is_named_not_its_victim(instance: None) -> None:
    """SIGSTOP in the midst of a job: found within the limit, named with what it did, and ended."""
    with roles_of(players(), RuntimeSpec(heartbeat_timeout_s=1)) as (roles, pids):
        stop = threading.Timer(1, os.kill, (pids[1], signal.SIGSTOP))
        stop.start()
        with raises(ApplianceRuntimeServerError, "role-stopped") as caught:
            roles.run(FOREVER)
        stop.join()
        assert caught.value.where == "b"
    assert running(pids) == set()


def test_role_that_continues_in_time_goes_on(instance: None) -> None:
    """A stop within the limit only takes its time; another host would see the pulses, too."""
    with roles_of(players(), RuntimeSpec(heartbeat_timeout_s=60)) as (roles, pids):
        os.kill(pids[0], signal.SIGSTOP)
        resume = threading.Timer(1.5, os.kill, (pids[0], signal.SIGCONT))
        resume.start()
        reports = roles.run(RALLY)
        resume.join()
        assert reports[0].norms | reports[1].norms == NORMS
        pulses = pulses_from_elsewhere(dict(roles.presences))
        assert [pulse and pulse.activity for pulse in pulses.values()] == [Activity.IDLE] * 2


def test_hanging_role_is_named_with_those_that_wait(instance: None) -> None:
    """A role that does not return from a message is found, not the one that waits for it."""
    with roles_of(players("hangs"), RuntimeSpec(stall_timeout_s=6)) as (roles, _):
        with raises(ApplianceDeadlockError, "role-stalled") as caught:
            roles.run(RALLY)
        assert caught.value.where == "b"
        assert str(caught.value.value).endswith("waiting for it: a")


@pytest.mark.nightly
def test_lost_message_names_who_waits_for_whom(instance: None) -> None:
    """Nobody is stopped or busy, but every role waits."""
    with roles_of(players("loses"), RuntimeSpec(stall_timeout_s=1)) as (roles, _):
        with raises(ApplianceDeadlockError, "roles-stalled") as caught:
            roles.run(RALLY)
        assert "a waits for b (the ball)" in str(caught.value.value)


def test_ray_hosted_passes_on_commands_and_errors(instance: None) -> None:
    """Commands are passed on, errors come back as themselves, and a dead coordinator is named."""
    hosted = RayHosted(Umpire, players(), RuntimeSpec(), uuid.uuid4().hex)
    try:
        pids = hosted.do(ReadPids())
        norms = hosted.do(Play(RALLY))
        assert norms["a"] | norms["b"] == NORMS
        with raises(ConfigError, "resigned") as caught:
            hosted.do(Fail("resign"))
        assert caught.value.value == "rain"
        with raises(ApplianceRuntimeServerError, "role-died") as died:
            hosted.do(Fail("die"))
        assert str(died.value.where).startswith("crd-0,")
    finally:
        hosted.shutdown()
    assert wait_for_end(pids, timeout_s=10) == set()


def test_stopped_coordinator_is_found(instance: None) -> None:
    """The user's process watches over the coordinator as it watches over the roles."""
    runtime = RuntimeSpec(heartbeat_timeout_s=1)
    hosted = RayHosted(Umpire, players(), runtime, uuid.uuid4().hex)
    try:
        pids = hosted.do(ReadPids())
        with raises(ApplianceRuntimeServerError, "role-stopped") as caught:
            hosted.do(Fail("stop"))
        assert caught.value.where == "crd-0"
    finally:
        hosted.shutdown()
    assert wait_for_end(pids, timeout_s=10) == set()


@pytest.mark.nightly
def test_coordinator_that_hangs_is_found(instance: None) -> None:
    """One that waits for roles goes on, however long; one that does not return otherwise ends."""
    hosted = RayHosted(Umpire, players("slow"), RuntimeSpec(stall_timeout_s=3), uuid.uuid4().hex)
    try:
        pids = hosted.do(ReadPids())
        assert len(hosted.do(Play(RALLY))) == 2
        time.sleep(3.5)  # between calls it may rest
        with raises(ApplianceDeadlockError, "role-stalled") as caught:
            hosted.do(Fail("hang"))
        assert caught.value.where == "crd-0"
    finally:
        hosted.shutdown()
    assert wait_for_end(pids, timeout_s=10) == set()


def test_too_few_cpus_are_an_error(instance: None) -> None:
    """On a joined cluster each CS system asks for a CPU; a cluster without says how many it has."""
    specs = [PlayerSpec(node_name(index), node_name(0)) for index in range(1000)]
    with raises(ClusterJobInitError, "too-few-cpus") as caught:
        RayRoles(specs, RuntimeSpec(address="auto"), uuid.uuid4().hex)
    assert str(caught.value.rule).startswith("1000 CPUs")


def test_cpus_that_others_hold_are_an_error(instance: None) -> None:
    """The wait for them ends with the start time-out."""
    cpus = int(ray.cluster_resources()["CPU"])
    group = ray.util.placement_group([{"CPU": 1}])
    ray.get(group.ready())
    host = Host(ray.get_runtime_context().get_node_id(), "here", capacity=cpus)
    runtime = RuntimeSpec(address="auto", start_timeout_s=1)
    try:
        with raises(ClusterJobInitError, "no-capacity-on-ray"):
            Places([node_name(index) for index in range(cpus)], Placer((host,)), runtime)
    finally:
        ray.util.remove_placement_group(group)
