"""Tasks of the page of keys: every section has one, and their examples are configurations."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import yaml

from appliance.spec import ClusterSpec
from scripts.configuration_tasks import TASKS, task_of
from waferstream.config.params import Params
from waferstream.config.schema.files import FileKind
from waferstream.config.schema.keys import all_keys
from waferstream.core.config import validate


def _merged(kind: FileKind) -> dict[str, Any]:
    """Return the examples of a file as one file."""
    merged: dict[str, Any] = {}
    for task in TASKS:
        if task.file == kind:
            _merge(merged, yaml.safe_load(task.example))
    return merged


def _merge(into: dict[str, Any], other: dict[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def test_examples_are_one_configuration() -> None:
    params = validate(Params, _merged("params"), "examples")
    assert params.trainer.init.backend.cluster_config.num_csx == 4
    cluster = validate(ClusterSpec, _merged("cluster"), "examples")
    assert cluster.machine.swarmx.fan_out == 2


def test_every_task_has_sections_and_every_section_a_task() -> None:
    tasks = {(key.file, task_of(key.file, key.place).title) for key in all_keys()}
    assert tasks == {(task.file, task.title) for task in TASKS}
    assert {task.file for task in TASKS} == {*get_args(FileKind)}


@pytest.mark.parametrize(
    ("place", "title"),
    [
        ("", "Say what to run, and how long"),
        ("trainer.init.loop", "Say what to run, and how long"),
        ("trainer.init.model.moe", "Describe the model"),
        ("trainer.init.model_dir", "Say what to run, and how long"),
        ("trainer.fit.train_dataloader.transforms", "Feed data"),
    ],
)
def test_section_belongs_to_the_nearest_task(place: str, title: str) -> None:
    assert task_of("params", place).title == title
