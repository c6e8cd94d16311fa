"""Files that a run accepts fit the JSON schemas; misspelt keys and wrong values do not."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from waferstream.config.schema.files import FileKind, schema_of
from waferstream.core.config import load_yaml

ROOT = Path(__file__).resolve().parents[5]
STOCK = sorted((ROOT / "modelzoo" / "params").glob("*.yaml"))


@cache
def validator(kind: FileKind) -> Draft202012Validator:
    schema = schema_of(kind)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def problems(kind: FileKind, data: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator(kind).iter_errors(data)]


@pytest.mark.parametrize("path", [ROOT / "params.yaml", *STOCK], ids=lambda path: path.stem)
def test_params_files_fit_their_schema(path: Path) -> None:
    assert problems("params", load_yaml(path)) == []


def test_cluster_file_fits_its_schema() -> None:
    assert problems("cluster", load_yaml(ROOT / "cluster.yaml")) == []


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the params file of the repository with one value changed."""
    data = deepcopy(load_yaml(ROOT / "params.yaml"))
    *parents, last = path.split(".")
    section = data["trainer"]
    for name in parents:
        section = section.setdefault(name, {})
    section[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("init.optimizer", {"adamw": {"learning_rate": 1e-3}}),
        ("init.callbacks", {"KeepNCheckpoints": {"n": 2}}),
        ("init.callbacks", [{"CheckLoss": None}, {"class": "mine:Watch", "every": 3}]),
        ("init.callbacks", [{"FlopUtilization": None}, {"ComputeNorm": {}}]),
        ("init.callbacks", [{"GlobalFlags": {"csx.performance.micro_batch_size": "explore"}}]),
        ("init.schedulers", {"ConstantWD": {"val": 0.1}}),
        ("init.model", {"class": "mine:Net", "width": 64, "loss": {"class": "torch.nn:MSELoss"}}),
        ("init.logging.wsc_log_level", {"wgt": "debug"}),
        ("init.sparsity", None),
        ("init.sparsity", 0.5),
        (
            "init.sparsity",
            {"algorithm": "gmp", "schedule": {"type": "linear", "init": 0, "slope": 0.1}},
        ),
        ("init.sparsity", [{"algorithm": "rigl", "sparsity": 0.5, "update": {"freq": 100}}]),
        ("init.loop.eval_frequency", None),
        ("init.model.initializer", {"name": "truncated_normal", "std": 0.02}),
        ("fit.val_dataloader", []),
        ("fit.train_dataloader", {"class": "mine:loader", "batch_size": 4, "seed": 1}),
        ("init.device", "CPU"),
    ],
)
def test_forms_that_a_run_accepts_fit(path: str, value: Any) -> None:
    assert problems("params", changed(path, value)) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("init.model.hiden_size", 8),
        ("init.model.num_heads", 0),
        ("init.model.name", "gpt7"),
        ("init.optimizer", {"AdamV": {}}),
        ("init.optimizer.AdamW.betta", 1),
        ("init.schedulers", [{"LinearLR": {"initial_learning_rate": 0.1}}]),
        ("init.callbacks", [{"KeepNCheckpoint": {"n": 2}}]),
        ("init.sparsity", {"algorithm": "statik", "sparsity": 0.5}),
        ("init.sparsity", 1.5),
        ("init.loop.max_steps", 0),
        ("init.loop.max_step", 10),
        ("fit.train_dataloader.max_sequence_lenght", 10),
        ("fit.train_dataloader", {"data_processor": "TextDataProcessor"}),
    ],
)
def test_wrong_keys_and_values_do_not_fit(path: str, value: Any) -> None:
    assert problems("params", changed(path, value)) != []


def test_phases_fit() -> None:
    phase = load_yaml(ROOT / "params.yaml")
    assert problems("params", {"trainer": [phase, phase]}) == []
    assert problems("params", {"trainer": [phase, {"runconfig": {}}]}) != []


@pytest.mark.parametrize(
    "machine",
    [None, {"system": "CS-3"}, {"system": {"name": "CS-3", "defects": {"pe_yield": 0.99}}},
     {"input": {"hdf5": {"sample_ps": 5}}}, {"jitter": {"stragglers": {"csx-1": 2.0}}}],
)  # fmt: skip
def test_machines_that_change_single_numbers_fit(machine: Any) -> None:
    faults = {"stated": ["csx-1@51:kill", {"role": "br-0", "step": 2, "kind": "drop"}]}
    data = {"machine": machine, "runtime": {"kind": "local", "faults": faults}}
    assert problems("cluster", data) == []


@pytest.mark.parametrize(
    "data",
    [{"machine": {"system": "CS-4"}}, {"machine": {"swarmx": {"fan_out": 1}}},
     {"runtime": {"link": "pigeon"}}, {"machines": {}}],
)  # fmt: skip
def test_wrong_machines_do_not_fit(data: Any) -> None:
    assert problems("cluster", data) != []
