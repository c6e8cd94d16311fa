"""Elaboration: roles of a cluster agree with each other; what does not fit is refused."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.elaboration.elaborate import ClusterSize, elaborate
from appliance.input.input_worker import WorkerSpec
from csnode.node import NodeSpec
from memoryx.server import ServerSpec
from swarmx.switch import SwitchSpec
from tests.support.errors import raises
from tests.support.programs.small_programs import PARAMETERS
from tests.support.roles.local_machine import (
    Regression,
    compile_model,
    installation,
    random_batches,
    sgd,
)
from tests.support.timing.machines import alone
from waferstream.compiler.compiled import Compiled
from waferstream.core.errors import ApplianceResourceExhausted, ConfigError
from waferstream.core.program.schedule import Rounds
from waferstream.core.roles.installation import Installation
from waferstream.core.roles.role import RoleSpec
from waferstream.machine.hardware import CS2, MachineSpec, MemoryXSpec, SwarmXSpec, override
from waferstream.machine.sram import SramPlan, code_bytes

Elaborated = tuple[
    Sequence[RoleSpec], list[ServerSpec], list[SwitchSpec], list[NodeSpec], list[WorkerSpec]
]

sizes = st.builds(
    lambda num_csx, servers, workers, lanes: ClusterSize(
        num_csx, servers, min(workers, num_csx), lanes
    ),
    st.integers(1, 20),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 3),
)


def roles_of(size: ClusterSize, fan_out: int = 4) -> Elaborated:
    machine = MachineSpec(swarmx=SwarmXSpec(fan_out=fan_out))
    specs = elaborate(PARAMETERS, size, machine, seed=5)
    servers = [spec for spec in specs if isinstance(spec, ServerSpec)]
    switches = [spec for spec in specs if isinstance(spec, SwitchSpec)]
    nodes = [spec for spec in specs if isinstance(spec, NodeSpec)]
    workers = [spec for spec in specs if isinstance(spec, WorkerSpec)]
    assert len(servers) + len(switches) + len(nodes) + len(workers) == len(specs)
    return specs, servers, switches, nodes, workers


@given(sizes, st.integers(2, 5))
def test_elaborated_roles_name_existing_peers(size: ClusterSize, fan_out: int) -> None:
    """There are as many roles as requested, and every peer of a role exists."""
    specs, servers, switches, nodes, workers = roles_of(size, fan_out)
    names = [spec.name for spec in specs]
    assert len(set(names)) == len(names)
    counts = (len(servers), len(nodes), len(workers))
    assert counts == (size.num_servers, size.num_csx, size.num_workers)
    parent_of = {child: switch.name for switch in switches for child in switch.children}
    assert all(node.parent == parent_of[node.name] for node in nodes)
    assert all(switch.parent == parent_of.get(switch.name) for switch in switches)
    assert [switch.name for switch in switches if switch.parent is None] == ["br-0"]
    assert {server.root for server in servers} == {"br-0"}
    assert set(parent_of) == {switch.name for switch in switches[1:]} | {
        node.name for node in nodes
    }


@given(sizes)
def test_every_node_has_one_input_worker(size: ClusterSize) -> None:
    """Node and worker name each other."""
    _, _, _, nodes, workers = roles_of(size)
    fed_by = {node: worker.name for worker in workers for node in worker.nodes}
    assert {node.index: node.worker for node in nodes} == fed_by


def test_machine_numbers_reach_the_role_specs() -> None:
    """Window, SRAM, seed and lanes come from the configuration."""
    machine = MachineSpec(
        system=override(CS2, sram_bytes=12345), memoryx=MemoryXSpec(prefetch_buckets=7)
    )
    specs = elaborate(PARAMETERS, ClusterSize(2, lanes=3), machine, seed=5)
    nodes = [spec for spec in specs if isinstance(spec, NodeSpec)]
    assert {(node.seed, node.lanes, node.sram_bytes) for node in nodes} == {(5, 3, 12345)}
    assert {spec.window for spec in specs if isinstance(spec, ServerSpec)} == {7}


def test_model_larger_than_memoryx_is_refused() -> None:
    """The error has the needed and the available bytes, and a remedy."""
    machine = MachineSpec(memoryx=MemoryXSpec(dram_bytes=100))
    with raises(ApplianceResourceExhausted, "model-exceeds-memoryx") as caught:
        elaborate(PARAMETERS, ClusterSize(1), machine, seed=0)
    assert caught.value.value == "fp32 weights 124 B"
    assert "100 B of DRAM" in str(caught.value.rule)
    assert "memoryx.dram_bytes" in str(caught.value.remedy)


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compile_model(Regression(), random_batches(1, 6)[0], num_micro_batches=3)


def install(
    compiled: Compiled, size: ClusterSize, machine: MachineSpec | None = None
) -> Installation:
    return installation(compiled, list, sgd(Regression()), size, machine or MachineSpec())


def test_too_few_micro_batches_are_refused(compiled: Compiled) -> None:
    """The error has the sizes, and the remedy names all three settings."""
    with raises(ConfigError, "system-without-micro-batch") as caught:
        install(compiled, ClusterSize(4))
    assert caught.value.value == "batch_size 6, micro_batch_size 2"
    remedy = str(caught.value.remedy)
    assert all(word in remedy for word in ("micro_batch_size", "num_csx", "batch_size"))
    assert install(compiled, ClusterSize(3)).rounds.count == 1


def test_activations_larger_than_sram_are_refused(compiled: Compiled) -> None:
    """The check needs the compiled program alone; a byte less than all is enough for blocks."""
    overhead = code_bytes(CS2)
    peak = SramPlan.of(compiled.program, alone(CS2)).peak_bytes
    assert peak > 0
    tight = MachineSpec(system=override(CS2, sram_bytes=overhead + peak - 1))
    program = install(compiled, ClusterSize(1), tight).program
    assert max(segment.blocks for segment in program.segments) == 2
    small = MachineSpec(system=override(CS2, sram_bytes=overhead + peak * 7 // 8))
    with raises(ApplianceResourceExhausted, "micro-batch-exceeds-sram") as caught:
        install(compiled, ClusterSize(1), small)
    assert "CS-2" in str(caught.value.rule)
    assert "micro_batch_size to 1 or less" in str(caught.value.remedy)
    assert install(
        compiled, ClusterSize(1), MachineSpec(system=override(CS2, sram_bytes=overhead + peak))
    )


def test_training_state_larger_than_memoryx_is_refused(compiled: Compiled) -> None:
    """The check needs the compiled program alone; flash extends DRAM."""
    weights = 4 * sum(spec.num_elements for spec in compiled.program.parameters)
    dram = MemoryXSpec(dram_bytes=2 * weights - 1)
    with raises(ApplianceResourceExhausted, "model-exceeds-memoryx") as no:
        install(compiled, ClusterSize(1), MachineSpec(memoryx=dram))
    assert no.value.value == f"fp32 weights {weights} B, gradient sums {weights} B"
    flash = dram.model_copy(update={"flash_bytes": 1})
    assert install(compiled, ClusterSize(1), MachineSpec(memoryx=flash))


def test_installation_matches_the_cluster_size(compiled: Compiled) -> None:
    """Streams are divided among servers, micro-batches among systems."""
    found = install(compiled, ClusterSize(2, num_servers=3))
    assert found.rounds == Rounds(num_micro_batches=3, num_nodes=2, per_node=2)
    small = install(compiled, ClusterSize(2, num_servers=3, activation_bytes=1))
    assert small.rounds == Rounds(num_micro_batches=3, num_nodes=2, per_node=1)
    assert {bucket.server for bucket in found.plan.weights} <= {0, 1, 2}
    assert found.kind == "train"


def test_verified_round_takes_half_of_the_memory() -> None:
    """The other half is for the parts of other nodes that a node computes, too."""
    compiled = compile_model(Regression(), random_batches(1, rows=16)[0], 16)

    def per_node(size: ClusterSize) -> int:
        return install(compiled, size).rounds.per_node

    budgets = range(0, 20_000, 100)
    plain = [per_node(ClusterSize(2, activation_bytes=each)) for each in budgets]
    twice = (ClusterSize(2, activation_bytes=2 * each, is_verified=True) for each in budgets)
    assert [per_node(size) for size in twice] == plain
    assert len(set(plain)) > 1
