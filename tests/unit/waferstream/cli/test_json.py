"""``--json``: every command prints its result as JSON alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml

from cstorch import distributed
from tests.support.host.tools import rows, tool
from tests.support.management.embedded import Runs
from tests.support.runs.tiny_run import TINY, write_run
from waferstream.cli.app import COMMANDS
from waferstream.cli.frame.commands import DECLARED
from waferstream.cli.main import main
from waferstream.management.manager.embedded import this_process
from waferstream.management.model.event import Ended
from waferstream.management.model.inventory import QueueSpec, Session
from waferstream.management.model.job import Phase
from waferstream.management.model.operations import AddUser, PutSession
from waferstream.workload.weight_files import write_checkpoint

_OURS = "--model=gpt2 --src-fmt=hf --tgt-fmt=cs-current"
_THEIRS = "--model=gpt2 --src-fmt=cs-current --tgt-fmt=hf"

CASES = {
    "config pull": "gpt2_small -o {new}/gpt2.yaml",
    "config validate": "{params}",
    "config convert_legacy": "{folder}/legacy.yaml -o {new}/converted.yaml",
    "config diff": "{params} {params}",
    "config stats": "{params}",
    "config schema": "cluster",
    "config explain": "loop.max_steps",
    "model list": "",
    "model info": "gpt2",
    "model describe": "gpt2",
    "model init_checkpoint": "{params} -o {new}/initial.mdl",
    "data preprocess": "{folder}/legacy.yaml --output_dir={new}/prepared --processes=1",
    "data view": "{folder}/prepared",
    "data_processor list": "",
    "data_processor info": "DummyDataProcessor",
    "data_processor describe": "DummyDataProcessor",
    "data_processor benchmark": "{params} --steps_per_epoch=1",
    "checkpoint convert": f"{{own}}.mdl {_THEIRS} --config={{own}}.yaml --output-dir={{new}}",
    "checkpoint convert-config": f"{{folder}}/config.json {_OURS} --output-dir={{new}}",
    "checkpoint list": "",
    "checkpoint info": "{saved}",
    "checkpoint diff": "{saved} {saved}",
    "checkpoint copy": "{saved} {new}/copy.mdl",
    "checkpoint move": "{new}/to_move.mdl {new}/moved.mdl",
    "checkpoint verify": "{saved}",
    "checkpoint seal": "{saved} {new}/sealed.mdl",
    "checkpoint prune": "{params} {folder}/initial.mdl {new}/pruned.mdl --sparsity=0.5",
    "checkpoint delete": "{new}/to_delete.mdl",
    "ctl get jobs": "",
    "ctl get job": "{job}",
    "ctl explain": "{job}",
    "ctl cancel": "{job}",
    "ctl label": "{job} team=b",
    "ctl job set-priority": "{job} p1",
    "ctl follow": "{ended}",
    "ctl log-export": "{job} -o {new}",
    "ctl get cluster": "",
    "ctl get nodegroups": "",
    "ctl get volumes": "",
    "ctl get worker-cache": "",
    "ctl clear-worker-cache": "",
    "ctl node drain": "system-0",
    "ctl node taint": "group-0",
    "ctl node restore": "system-0",
    "ctl get sessions": "",
    "ctl session create": "new --systems 1",
    "ctl session resize": "lab --systems 1",
    "ctl session delete": "lab",
    "ctl user add": "ann",
    "ctl user revoke": "bob",
    "ctl completion": "",
    "ctl what-if": "--inventory=deploy/inventories/andromeda.yaml --trace={trace}",
    "machine list": "",
    "machine show": "condor-galaxy-1",
    "cluster plan": "--cluster={folder}/cluster.yaml --hosts=2x9",
    "certificates make": "{new}/certificates --host=a",
    "tco": "examples/tco.yaml --page={new}/tco.html",
    "study": "{params} --over=num_csx=1,2",
    "search": "{params} --budget=1e6 --num_csx=1,2 --batch_size=8",
}
"""Words of every command, with the places of the fixture."""

OTHERS = {
    *("ctl export", "ctl login", "cluster serve", "explore"),
    *("compare", "report", "runs compare", "runs list", "runs rm", "runs show"),
}
"""Commands that need a management, or end with a signal; those with tests of their own."""

GPT2 = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 11}
LEGACY = {
    "train_input": {"data_processor": "DummyDataProcessor", "batch_size": 8},
    "model": {"name": "gpt2", "hidden_size": 64, "num_heads": 2},
    "optimizer": {"optimizer_type": "AdamW", "learning_rate": 0.01},
    "runconfig": {"max_steps": 10},
}
ERROR_FIELDS = {"kind", "what", "code", "where", "value", "rule", "remedy"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that commands read."""
    found = tmp_path_factory.mktemp("files")
    write_run(found)
    initial = ["-o", f"{found / 'initial.mdl'}"]
    assert main(["model", "init_checkpoint", f"{found / 'params.yaml'}", *initial]) == 0
    (found / "legacy.yaml").write_text(yaml.safe_dump(LEGACY))
    prepared = [f"--output_dir={found / 'prepared'}", "--processes=1"]
    assert main(["data", "preprocess", f"{found / 'legacy.yaml'}", *prepared]) == 0
    (found / "config.json").write_text(json.dumps(GPT2))
    assert main(["checkpoint", "convert-config", f"{found / 'config.json'}", *_OURS.split()]) == 0
    (own,) = found.glob("*_to_cs.yaml")
    assert main(["model", "init_checkpoint", f"{own}", "-o", f"{own.with_suffix('.mdl')}"]) == 0
    return found


@pytest.fixture
def places(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Return the places of files."""
    monkeypatch.setenv("WAFERSTREAM_STATE", f"{tmp_path / 'state'}")
    for name in ("saved", "to_move", "to_delete"):
        write_checkpoint(tmp_path / f"{name}.mdl", {"weight": torch.ones(2)}, {"global_step": 1})
    (own,) = folder.glob("*_to_cs.yaml")
    monkeypatch.setattr(distributed, "WORKER_CACHE_ROOT", tmp_path / "cache")
    job, ended = _jobs()
    return {
        "folder": folder,
        "params": folder / "params.yaml",
        "own": own.with_suffix(""),
        "saved": tmp_path / "saved.mdl",
        "new": tmp_path,
        "job": job,
        "trace": _trace(tmp_path / "trace.swf"),
        "ended": ended,
    }


def _trace(path: Path) -> Path:
    """Write the trace of one job, and return its path."""
    path.write_text("1 0 -1 60 1 -1 -1 1 60 -1 1 1 1 -1 -1 -1 -1 -1\n")
    return path


def _jobs() -> tuple[str, str]:
    """Return a job of another host and an ended one; there are a session and a user, too."""
    runs = Runs(QueueSpec(systems=2).inventory())
    other = this_process().model_copy(update={"host": "elsewhere"})
    names = []
    for _ in range(2):
        workflow = runs.submit(other)
        names.append(runs.start(workflow))
    runs.note(workflow, Ended(result=Phase.SUCCEEDED))
    runs.client.do(PutSession(session=Session(name="lab", systems=0, groups=0)))
    runs.client.do(AddUser(name="bob"))
    runs.client.close()
    return names[0], names[1]


def test_every_command_has_a_case() -> None:
    tools = {name: entry for name, entry in COMMANDS.items() if entry.module.startswith("tools")}
    for name, entry in tools.items():
        entry.load(name)
    commands = {name for name in DECLARED if {name, name.split()[0]} & tools.keys()}
    assert commands == set(CASES) | OTHERS


@pytest.mark.parametrize("command", CASES)
def test_command_prints_json_alone(
    command: str, places: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows, or the one object that the command is about (a schema, a job)."""
    words = f"{command} {CASES[command].format(**places)} --json".split()
    found = json.loads(tool(capsys, *words))
    if command in ("config schema", "ctl get job", "tco", "study"):
        found = [found]
    assert all(isinstance(row, dict) and row for row in found)


def test_files_that_were_written_are_named(
    places: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = rows(capsys, "checkpoint", "copy", places["saved"], f"{places['new']}/copy.mdl")
    assert Path(row["path"]).is_file()
    (verified,) = rows(capsys, "checkpoint", "verify", row["path"])
    assert (verified["checksums"], verified["tensors"]) == (True, 1)


def test_error_is_json_with_its_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The text is on standard error, as without the flag."""
    params = tmp_path / "params.yaml"
    params.write_text(yaml.safe_dump({"trainer": {**TINY["trainer"], "inti": {}}}))
    for words in (["config", "validate", f"{params}"], ["--params", f"{params}"]):
        assert main([*words, "--json"], home=tmp_path) == 1
        out, err = capsys.readouterr()
        error = json.loads(out)["error"]
        assert set(error) == ERROR_FIELDS
        assert (error["kind"], error["code"]) == ("ConfigError", "unknown-key")
        assert f"[{error['code']}]" in err


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ("runs list --bogus", "waferstream runs list"),
        ("runs", "waferstream runs"),
        ("runs lost", "waferstream runs"),
        ("nothing", "waferstream"),
        ("simulate no_such_file.yaml --num_csx many", "waferstream simulate"),
        ("checkpoint verify", "waferstream checkpoint verify"),
        ("check --steps", "waferstream check"),
        ("--simulate", "waferstream"),
        ("--params p.yaml --trace_limit 3", "waferstream"),
    ],
)
def test_wrong_command_line_is_json_with_its_fields(
    words: str, where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the exit code and the text of one without the flag."""
    with pytest.raises(SystemExit) as caught:
        main([*words.split(), "--json"], tmp_path)
    out, err = capsys.readouterr()
    error = json.loads(out)["error"]
    assert caught.value.code == 2
    assert set(error) == ERROR_FIELDS
    assert (error["kind"], error["code"]) == ("ConfigError", "wrong-command-line")
    assert error["where"] == where
    assert error["what"] in err
