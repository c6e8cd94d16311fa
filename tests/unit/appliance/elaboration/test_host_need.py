"""Memory is checked before a process of the cluster starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.elaboration import host_need
from appliance.elaboration.elaborate import ClusterSize
from appliance.elaboration.host_need import (
    check_host,
    check_hosts,
    needs_of,
    needs_of_hosts,
    needs_on,
    remedy_on_hosts,
    roles_on,
    weight_needs,
)
from appliance.placement.placer import Host, Placement, Placer
from appliance.spec import RuntimeSpec, ServerStrategy, Strategy
from memoryx.memory.flash_spec import FlashSpec
from memoryx.sparsity.packing import held_bytes
from tests.support.errors import raises
from tests.support.roles.local_machine import (
    Regression,
    compiled_regression,
    installation,
    sgd,
)
from tests.support.runs.tiny_run import run_here, write_run
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.roles.installation import Installation
from waferstream.machine.hardware import MachineSpec


def installed(size: ClusterSize) -> Installation:
    """Return the installation of a step of six samples on a cluster."""
    return installation(compiled_regression(6, 3), list, sgd(Regression()), size, MachineSpec())


def test_need_grows_with_systems_but_not_that_of_the_weights() -> None:
    """Every system has activations of its own; gradient sums are kept over several rounds only."""
    one, two = ClusterSize(1, activation_bytes=1), ClusterSize(2, activation_bytes=1)
    on_one, on_two = (needs_of(installed(size), size).training for size in (one, two))
    weights = 4 * sum(weight.numel() for weight in Regression().parameters())
    assert on_one["fp32 weights"] == on_two["fp32 weights"] == on_one["gradient sums"] == weights
    assert on_two["activations of 2 x 1 micro-batches"] == pytest.approx(
        2 * on_one["activations of 1 x 1 micro-batches"]
    )
    flash = replace(one, flash=FlashSpec(path=Path(), resident_bytes=8))
    assert needs_of(installed(one), flash).training["weights and state beside flash"] == 8
    whole = ClusterSize(1)
    assert "gradient sums" not in needs_of(installed(whole), whole).training


def test_host_without_the_memory_is_refused_with_ways_out() -> None:
    size = ClusterSize(1)
    need = needs_of(installed(size), size).total
    check_host(installed(size), size, free=need)
    with raises(ApplianceResourceExhausted, "model-exceeds-host") as caught:
        check_host(installed(size), size, free=need - 1)
    assert "fp32 weights" in str(caught.value.value)
    assert "--simulate" in str(caught.value.remedy)


@pytest.mark.parametrize("free_bytes", [None, 1 << 40])
def test_a_plan_needs_as_much_as_the_run(free_bytes: int | None) -> None:
    """Gradient sums included, where the memory of the host leads to several rounds."""
    size = ClusterSize(1, activation_bytes="auto" if free_bytes else 1)
    whole = installed(size)
    placed = Placer((Host("0", "10.0.0.0", 1, free_bytes=free_bytes),)).place(1)
    held = held_bytes(whole.program, 0)
    assert needs_of_hosts(whole.program, (), held, RuntimeSpec(), 1, placed) == [
        needs_of(whole, size)
    ]
    assert ("gradient sums" in needs_of(whole, size).training) == (free_bytes is None)


@pytest.mark.parametrize("servers", ["PACK", "SPREAD"])
def test_each_host_must_have_the_memory_of_its_own_roles(servers: ServerStrategy) -> None:
    """Together the hosts need what one would; the error names the host that lacks it."""
    size = ClusterSize(2, num_servers=2)
    whole = installed(size)
    free = needs_of(whole, size).total

    def placement(*free_bytes: int) -> Placement:
        hosts = tuple(
            Host(f"{i}", f"10.0.0.{i}", 1, free_bytes=n) for i, n in enumerate(free_bytes)
        )
        return Placer(hosts, servers=servers).place(2)

    check_hosts(whole, size, placement(free, free))
    weights = weight_needs(whole, size)
    needs = [
        needs_on(roles, weights, whole.program, 2).total
        for roles in roles_on(placement(free, free), size.num_servers)
    ]
    assert sum(needs) == free
    check_hosts(whole, size, placement(*needs))
    for host, address in ((0, "10.0.0.0"), (1, "10.0.0.1")):
        short = [each - (index == host) for index, each in enumerate(needs)]
        with raises(ApplianceResourceExhausted, "model-exceeds-host") as caught:
            check_hosts(whole, size, placement(*short))
        assert address in str(caught.value.where)


@pytest.mark.parametrize("strategy", ["PACK", "SPREAD"])
@pytest.mark.parametrize("servers", ["PACK", "SPREAD"])
def test_remedy_names_no_setting_that_the_cluster_has(
    strategy: Strategy, servers: ServerStrategy
) -> None:
    hosts = tuple(Host(f"{i}", f"10.0.0.{i}", capacity) for i, capacity in enumerate((4, 4, 1)))
    placed = Placer(hosts, strategy=strategy, servers=servers).place(6)
    remedy = remedy_on_hosts(placed, 3, None)
    assert ("runtime.placement" in remedy) == (strategy == "PACK")
    assert ("runtime.server_placement" in remedy) == (servers == "PACK")
    assert "memoryx.weight_servers" not in remedy
    assert "memoryx.weight_servers: 3" in remedy_on_hosts(placed, 2, None)
    assert "resident_bytes" not in remedy
    assert "resident_bytes" in remedy_on_hosts(
        placed, 3, FlashSpec(path=Path("x"), resident_bytes=1)
    )


def test_run_is_refused_before_its_cluster_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulation that the error proposes runs on the same host."""
    monkeypatch.setattr(host_need, "free_bytes", lambda: 1000)
    monkeypatch.setattr(host_need, "swap_bytes", lambda: 0)
    flags = write_run(tmp_path, init__loop={"max_steps": 1})
    code, out, err = run_here([*flags, "--mode=train"], capsys)
    assert code == 1
    assert "[model-exceeds-host]" in err
    assert "Preparing to execute" not in out
    assert run_here([*flags, "--simulate"], capsys)[0] == 0
