"""Where roles run: systems in contiguous runs, everything else with the user's program."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from appliance.elaboration.elaborate import ClusterSize, elaborate
from appliance.placement.placer import (
    Host,
    Placement,
    Placer,
    bytes_of_activations,
    check_gpus,
    check_gpus_of_hosts,
)
from appliance.spec import ClusterSpec, RuntimeSpec, ServerStrategy, Strategy
from appliance.starting import lanes_on
from csnode.node import NodeSpec
from swarmx.topology import HostTree, Tree
from tests.support.errors import raises
from waferstream.core.config import validate
from waferstream.core.errors import ClusterJobInitError, ConfigError
from waferstream.core.roles.names import node_name, switch_name
from waferstream.machine.hardware import MachineSpec

HOSTS = tuple(Host(f"id-{i}", f"10.0.0.{i}", capacity=4, cores=2 + i) for i in range(3))

ON_GPUS = RuntimeSpec(device="cuda")


def placed(
    num: int, strategy: Strategy, hosts: tuple[Host, ...] = HOSTS, servers: ServerStrategy = "PACK"
) -> Placement:
    return Placer(hosts, 4, strategy, servers).place(num)


@pytest.mark.parametrize(
    ("strategy", "num", "counts"),
    [
        ("PACK", 6, [4, 2, 0]),
        ("PACK", 12, [4, 4, 4]),
        ("SPREAD", 4, [2, 1, 1]),
        ("STRICT_PACK", 4, [4, 0, 0]),
        ("STRICT_SPREAD", 3, [1, 1, 1]),
    ],
)
def test_systems_take_hosts_by_strategy(strategy: Strategy, num: int, counts: list[int]) -> None:
    """An exact fit counts: no role but the systems needs a CPU of its own."""
    assert [len(run) for run in placed(num, strategy).systems] == counts


def test_spread_respects_small_hosts() -> None:
    small = (Host("a", "a", 1), Host("b", "b", 5), Host("c", "c", 2))
    assert [len(run) for run in placed(8, "SPREAD", small).systems] == [1, 5, 2]


@pytest.mark.parametrize(
    ("strategy", "num", "code"),
    [
        ("PACK", 13, "too-few-cpus"),
        ("STRICT_PACK", 5, "too-few-hosts"),
        ("STRICT_SPREAD", 4, "too-few-hosts"),
    ],
)
def test_hosts_that_are_too_few_or_small_are_refused(
    strategy: Strategy, num: int, code: str
) -> None:
    with raises(ClusterJobInitError, code):
        placed(num, strategy)


@pytest.mark.parametrize(
    ("strategy", "most"), [("PACK", 12), ("SPREAD", 12), ("STRICT_PACK", 4), ("STRICT_SPREAD", 3)]
)
def test_most_systems_that_hosts_take_can_be_placed(strategy: Strategy, most: int) -> None:
    placer = Placer(HOSTS, 4, strategy)
    assert placer.most(99) == most == placer.place(most).num_systems
    assert placer.most(2) == 2
    assert Placer((Host("a", "a", 0),), 4, strategy).most(2) == 0


def test_each_switch_runs_on_the_host_of_its_nodes() -> None:
    placement = placed(6, "SPREAD")
    assert isinstance(placement.tree, HostTree)
    for switch in placement.tree.switches[1:]:
        hosts = {placement.host_of(node_name(node)) for node in switch.nodes}
        assert hosts == {placement.host_of(switch_name(switch.index))}


def test_all_other_roles_run_with_the_program() -> None:
    placement = placed(6, "SPREAD")
    assert {placement.host_of(r) for r in ("crd-0", "br-0", "wgt-3", "rpl-3", "wrk-2", "x")} == {0}


def test_servers_can_be_spread_with_their_replicas_elsewhere() -> None:
    placement = placed(3, "SPREAD", servers="SPREAD")
    assert [placement.host_of(f"wgt-{i}") for i in range(4)] == [0, 1, 2, 0]
    assert [placement.host_of(f"rpl-{i}") for i in range(4)] == [1, 2, 0, 1]
    assert [placement.host_of(f"act-{i}") for i in range(4)] == [0, 1, 2, 0]


def test_one_host_has_the_tree_of_the_machine() -> None:
    assert placed(4, "PACK").tree == Tree(4, 4)
    assert placed(4, "PACK").num_hosts == 1


def test_root_stays_with_the_program_when_its_host_has_no_system() -> None:
    hosts = (Host("a", "a", 0), Host("b", "b", 4))
    placement = placed(4, "PACK", hosts)
    assert [placement.host_of(f"br-{i}") for i in range(2)] == [0, 1]
    assert placement.num_hosts == 2


def test_lanes_fit_the_cores_of_every_host() -> None:
    """Each host's own, shared by its systems; one lane at least."""
    hosts = (Host("a", "a", 2, cores=16), Host("b", "b", 2, cores=6))
    assert [placed(4, "PACK", hosts).lanes_of(i) for i in range(4)] == [8, 8, 3, 3]
    assert placed(8, "PACK", (Host("a", "a", 8, cores=2),)).lanes_of(7) == 1


def test_nodes_get_the_lanes_of_their_host() -> None:
    hosts = (Host("a", "a", 2, cores=16), Host("b", "b", 2, cores=6))
    placement = placed(3, "PACK", hosts)
    specs = elaborate([], ClusterSize(3), MachineSpec(), seed=0, tree=placement.tree)
    fitted = placement.with_lanes(specs)
    assert [role.lanes for role in fitted if isinstance(role, NodeSpec)] == [8, 8, 6]
    assert [role.name for role in fitted] == [role.name for role in specs]


def test_work_of_placing_grows_no_faster_than_the_systems() -> None:
    """Counted in calls: other work on this computer does not count."""
    calls: Counter[int] = Counter()

    def place(num: int) -> int:
        hosts = tuple(Host(f"{i}", f"{i}", capacity=8, rack=f"{i // 16}") for i in range(num // 8))
        sys.setprofile(lambda _frame, event, _argument: calls.update({num: event == "call"}))
        try:
            roles = placed(num, "SPREAD", hosts).roles(num_servers=24, num_workers=16)
        finally:
            sys.setprofile(None)
        return sum(map(len, roles.values()))

    assert place(2048) == 1 + 24 + 16 + 2048 + 1 + 16 + 256
    place(1024)
    assert calls[2048] <= 2 * calls[1024]


@pytest.mark.parametrize(("num_systems", "gpus"), [(1, 0), (9, 1), (17, 2)])
def test_host_with_too_few_gpus_is_refused(
    num_systems: int, gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This host, and one of a joined cluster."""
    monkeypatch.setattr("appliance.placement.placer.num_gpus", lambda: gpus)
    check_gpus("cpu", num_systems)
    with raises(ClusterJobInitError, "too-few-gpus"):
        check_gpus("cuda", num_systems)
    placement = Placer((Host("a", "a", 32, gpus=gpus),)).place(num_systems)
    check_gpus_of_hosts("cpu", placement)
    with raises(ClusterJobInitError, "too-few-gpus"):
        check_gpus_of_hosts("cuda", placement)


def test_systems_may_share_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to eight systems each; a host without systems needs none."""
    monkeypatch.setattr("appliance.placement.placer.num_gpus", lambda: 2)
    check_gpus("cuda", 16)
    check_gpus_of_hosts("cuda", Placer((Host("a", "a", 3, gpus=1), Host("b", "b", 3))).place(3))


@pytest.mark.parametrize("engine", ["wafer", {"sparse_products": "auto"}])
def test_engine_of_the_processor_refuses_gpus(engine: object) -> None:
    """The array of PEs, and products of non-zeros."""
    runtime = {"device": "cuda", "engine": engine}
    with raises(ConfigError, "gpu-without-torch"):
        validate(ClusterSpec, {"runtime": runtime}, "test")


def test_activations_take_half_of_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that the systems use; otherwise what was said, or what the host has."""
    monkeypatch.setattr("appliance.placement.placer.memory_of_gpus", lambda: [10, 20, 40])
    assert bytes_of_activations(ON_GPUS, 2) == 15
    assert bytes_of_activations(RuntimeSpec(device="cuda", activation_memory=7), 2) == 7
    assert bytes_of_activations(RuntimeSpec(), 2) == "auto"


def test_gpu_takes_micro_batches_one_after_the_other() -> None:
    """Kernels fill a GPU by themselves; lanes would only compete for it."""
    assert lanes_on(RuntimeSpec(device="cuda", cores=8), 2) == 1
    assert lanes_on(RuntimeSpec(cores=8), 2) == 4
