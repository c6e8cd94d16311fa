"""Elaboration: a size becomes roles that fit together, and what cannot fit is told in numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.elaborate import ClusterSize, elaborate
from csnode.node import NodeSpec
from memoryx.server import ServerSpec
from swarmx.switch import SwitchSpec
from tests.support.local_machine import Regression, compile_model, installation, random_batches, sgd
from tests.support.small_programs import PARAMETERS
from timing.hardware import CS2, MachineSpec, MemoryXSpec, SwarmXSpec, override
from timing.sram import SramPlan, code_bytes
from wsc.core.errors import ApplianceResourceExhausted, ConfigError

sizes = st.builds(
    lambda num_csx, servers, workers, lanes: ClusterSize(
        num_csx, servers, min(workers, num_csx), lanes
    ),
    st.integers(1, 20),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 3),
)


def roles_of(size, fan_out=4):
    machine = MachineSpec(swarmx=SwarmXSpec(fan_out=fan_out))
    specs = elaborate(PARAMETERS, size, machine, seed=5)
    kinds = (ServerSpec, SwitchSpec, NodeSpec)
    by_kind = {kind: [spec for spec in specs if isinstance(spec, kind)] for kind in kinds}
    workers = [spec for spec in specs if not isinstance(spec, kinds)]
    return specs, *by_kind.values(), workers


@given(sizes, st.integers(2, 5))
def test_the_rooms_fit_together(size, fan_out):
    """As many of each as asked for; every name that a role knows is a role's name."""
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
    assert set(parent_of) == {spec.name for spec in (*switches[1:], *nodes)}


@given(sizes)
def test_every_node_has_one_worker(size):
    """And the worker knows the node."""
    _, _, _, nodes, workers = roles_of(size)
    fed_by = {node: worker.name for worker in workers for node in worker.nodes}
    assert {node.index: node.worker for node in nodes} == fed_by


def test_numbers_of_the_machine_reach_the_roles():
    """Window, SRAM, seed and lanes come from where the user set them."""
    machine = MachineSpec(
        system=override(CS2, sram_bytes=12345), memoryx=MemoryXSpec(prefetch_buckets=7)
    )
    specs = elaborate(PARAMETERS, ClusterSize(2, lanes=3), machine, seed=5)
    nodes = [spec for spec in specs if isinstance(spec, NodeSpec)]
    assert {(node.seed, node.lanes, node.sram_bytes) for node in nodes} == {(5, 3, 12345)}
    assert {spec.window for spec in specs if isinstance(spec, ServerSpec)} == {7}


def test_a_model_that_memoryx_cannot_hold_is_refused():
    """What it needs, what there is, what to do."""
    machine = MachineSpec(memoryx=MemoryXSpec(dram_bytes=100))
    with pytest.raises(ApplianceResourceExhausted, match="the model needs 124 B") as caught:
        elaborate(PARAMETERS, ClusterSize(1), machine, seed=0)
    assert caught.value.value == "fp32 weights 124 B"
    assert "100 B of DRAM" in caught.value.rule
    assert "memoryx.dram_bytes" in caught.value.remedy


@pytest.fixture(scope="module")
def compiled():
    return compile_model(Regression(), random_batches(1, 6)[0], num_micro_batches=3)


def install(compiled, size, machine=None):
    return installation(compiled, list, sgd(Regression()), size, machine or MachineSpec())


def test_too_few_micro_batches_are_refused(compiled):
    """The numbers that decide, and the three ways out."""
    with pytest.raises(ConfigError, match="4 CS systems have only 3 micro-batches") as caught:
        install(compiled, ClusterSize(4))
    assert caught.value.value == "batch_size 6, micro_batch_size 2"
    assert all(
        word in caught.value.remedy for word in ("micro_batch_size", "num_csx", "batch_size")
    )
    assert install(compiled, ClusterSize(3)).rounds.count == 1


def test_activations_that_do_not_fit_the_wafer_are_refused(compiled):
    """Before anything starts, from the compiled program alone."""
    overhead = code_bytes(CS2)
    peak = SramPlan.of(compiled.program, CS2).peak_bytes
    assert peak > 0
    small = MachineSpec(system=override(CS2, sram_bytes=overhead + peak - 1))
    with pytest.raises(ApplianceResourceExhausted, match="of one train micro-batch") as caught:
        install(compiled, ClusterSize(1), small)
    assert "CS-2" in caught.value.rule
    assert "micro_batch_size to 1 or less" in caught.value.remedy
    assert install(
        compiled, ClusterSize(1), MachineSpec(system=override(CS2, sram_bytes=overhead + peak))
    )


def test_training_needs_room_for_gradients_and_optimizer_state(compiled):
    """Known before anything starts; flash takes what DRAM cannot."""
    weights = 4 * sum(spec.num_elements for spec in compiled.program.parameters)
    dram = MemoryXSpec(dram_bytes=2 * weights - 1)
    with pytest.raises(ApplianceResourceExhausted, match=f"the model needs {2 * weights} B") as no:
        install(compiled, ClusterSize(1), MachineSpec(memoryx=dram))
    assert no.value.value == f"fp32 weights {weights} B, gradient sums {weights} B"
    flash = dram.model_copy(update={"flash_bytes": 1})
    assert install(compiled, ClusterSize(1), MachineSpec(memoryx=flash))


def test_the_installation_fits_the_size(compiled):
    """Streams cut by servers, rounds by systems and lanes."""
    found = install(compiled, ClusterSize(2, num_servers=3, lanes=2))
    assert (found.rounds.num_nodes, found.rounds.lanes, found.rounds.num_micro_batches) == (2, 2, 3)
    assert {bucket.server for bucket in found.plan.weights} <= {0, 1, 2}
    assert found.mode == "train"
