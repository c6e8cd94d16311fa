"""Classes of the user's own take part in a study, and what is none is refused where it is named."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from swarmx.topology import topology_of
from tests.support.errors import raises
from tests.support.models.tiny_models import NO_DROPOUT
from waferstream.core.config import dump_yaml
from waferstream.core.errors import ConfigError
from waferstream.core.program.micro_batches import MicroBatchPolicy
from waferstream.core.program.segment import OpWork
from waferstream.machine.hardware import CS2, MachineSpec, SwarmXSpec, override
from waferstream.machine.intervals.steps import machine_name
from waferstream.machine.kernels import Grid
from waferstream.machine.kernels.op_costs import cost_function_of
from waferstream.simulation.explanation import _reason

HERE = "extensions"
EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(autouse=True)
def extensions(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import the example from its folder, as beside a file that names it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return import_module(HERE)


@pytest.fixture
def params_file(tmp_path: Path) -> Path:
    model = {
        "name": "gpt2",
        "vocab_size": 64,
        "max_position_embeddings": 16,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_heads": 2,
        "filter_size": 64,
        **NO_DROPOUT,
    }
    loader = {"data_processor": "DummyDataProcessor", "batch_size": 64, "vocab_size": 64}
    init = {
        "model": model,
        "optimizer": {"SGD": {"lr": 0.1}},
        "loop": {"max_steps": 1},
        "model_dir": str(tmp_path / "model_dir"),
    }
    path = tmp_path / "params.yaml"
    fit = {"train_dataloader": {**loader, "max_sequence_length": 16}}
    path.write_text(dump_yaml({"trainer": {"init": init, "fit": fit}}), encoding="utf-8")
    return path


def test_every_extension_changes_the_step(extensions: Any, params_file: Path) -> None:
    times = extensions.step_times(params_file, num_csx=16)
    published = times.pop("as published")
    assert set(times) == set(extensions.EXTENSIONS) - {"as published"}
    assert published not in times.values()


def test_ring_is_half_as_deep_as_it_has_systems() -> None:
    spec = SwarmXSpec(topology=f"{HERE}:Ring")
    assert [topology_of(spec, count).depth for count in (1, 2, 16)] == [1, 1, 8]
    assert topology_of(SwarmXSpec(), 16).depth == 2


def test_costs_of_other_kinds_keep_their_closed_forms() -> None:
    grid = Grid(CS2.fabric, 10)
    for kind, factor in (("softmax", 0.5), ("norm", 1.0)):
        work = OpWork(op="_softmax", kind=kind, shape=(64, 64), flops=0)
        own, published = (
            cost_function_of(work, own_costs=path).cycles(grid, "float16").total_cycles
            for path in (f"{HERE}:FusedSoftmax", None)
        )
        assert own == pytest.approx(factor * published)


def test_machine_of_an_import_path_is_as_it_is_stated() -> None:
    machine = MachineSpec(name=f"{HERE}:WAREHOUSE")
    assert (machine.systems, machine.system.name) == (1024, "CS-3")
    assert machine.swarmx.link_bandwidth_bytes_per_s == 300_000_000_000


def test_policy_cuts_evenly_below_what_it_returns() -> None:
    policy = MicroBatchPolicy(f"{HERE}:Halves")
    assert policy.size(100, 4) == 12  # half of a share of 25
    assert policy.size(100, 4, largest=5) == 5
    assert "class" in _reason(policy.name)


def test_numbers_of_extensions_have_no_interval() -> None:
    """Nobody has measured such a machine: the report names what differs."""
    costs = override(MachineSpec(), system={"kernel_costs": f"{HERE}:FusedSoftmax"})
    assert "kernel_costs" in machine_name(costs)
    assert "topology" in machine_name(MachineSpec(swarmx=SwarmXSpec(topology=f"{HERE}:Ring")))


@pytest.mark.parametrize("name", ["Halves", "WAREHOUSE", "step_times"])
def test_what_is_no_topology_is_refused(name: str) -> None:
    with raises(ConfigError, "extension-of-wrong-kind"):
        topology_of(SwarmXSpec(topology=f"{HERE}:{name}"), 4)


def test_what_cannot_be_imported_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with raises(ConfigError, "class-not-importable"):
        topology_of(SwarmXSpec(topology=f"{HERE}:Rings"), 4)
    with raises(ConfigError, "extension-of-wrong-kind"):
        MachineSpec(name=f"{HERE}:Ring")
    with raises(ConfigError, "not-allowed"):
        SwarmXSpec(topology="ring")
    monkeypatch.setenv("WAFERSTREAM_USER_CODE", "refuse")
    with raises(ConfigError, "user-code-refused"):
        MachineSpec(name=f"{HERE}:WAREHOUSE")
