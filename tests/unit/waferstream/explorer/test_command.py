"""The command and the YAML that the page offers are of the configuration that it shows."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.runs.tiny_run import write_run
from waferstream.cli.app import context_of
from waferstream.cli.arguments import arguments_of
from waferstream.cli.run import cluster_of
from waferstream.config.phases import load_params
from waferstream.explorer.command import command_of
from waferstream.explorer.explorer import Explorer
from waferstream.explorer.settings import Configured, Files, checked

MOVED = [
    {},
    {"systems": 4, "batch": 32, "sequence": 64, "layers": 12},
    {"density": 0.25, "clock": 10**9, "fan_out": 2},
    {"links": 10**11, "memory": 10**12},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_run(tmp_path)
    return tmp_path


def configured(folder: Path, settings: dict[str, Any]) -> tuple[str, Configured]:
    explorer = Explorer.of_files(folder / "params.yaml", folder / "cluster.yaml")
    files = Files(explorer.params, explorer.cluster)
    found = files.with_settings(checked(settings, explorer.knobs), explorer.knobs)
    return command_of(explorer.files, settings.get("systems", 1), found.changes), found


@pytest.mark.parametrize("settings", MOVED, ids=lambda each: "-".join(each) or "at-rest")
def test_command_is_of_the_configuration(folder: Path, settings: dict[str, Any]) -> None:
    command, expected = configured(folder, settings)
    words = shlex.split(command.replace("\\\n", ""))[1:]
    arguments = arguments_of(context_of(words, folder), words)
    found = load_params(arguments.params, arguments.overrides())
    machine = cluster_of(arguments).machine
    assert machine == expected.cluster.machine
    ours, theirs = expected.params.dump()["trainer"], found.dump()["trainer"]
    assert theirs["fit"] == ours["fit"]
    assert theirs["init"]["model"] == ours["init"]["model"]
    assert theirs["init"].get("sparsity") == ours["init"].get("sparsity")
    assert found.trainer.init.backend.cluster_config.num_csx == settings.get("systems", 1)


@pytest.mark.parametrize("settings", MOVED[1:], ids="-".join)
def test_yaml_has_the_changed_keys_of_both_files(folder: Path, settings: dict[str, Any]) -> None:
    _, found = configured(folder, settings)
    data = yaml.safe_load(found.yaml)
    for dotted, value in found.changes.items():
        inner = data
        for key in dotted.split("."):
            inner = inner[key]
        assert inner == value
