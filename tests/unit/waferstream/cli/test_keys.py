"""Keys of the files are typed as flags, and refused by the nearest name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.errors import raises
from waferstream.cli.arguments import parse_arguments
from waferstream.cli.main import main
from waferstream.cli.run import cluster_of
from waferstream.config.phases import load_params
from waferstream.core.errors import ConfigError

PARAMS = {
    "trainer": {
        "init": {
            "model": {"name": "gpt2", "hidden_size": 64},
            "optimizer": {"AdamW": {"lr": 0.1}},
            "callbacks": [{"GlobalFlags": {"csx.debug.ini": {"x": 1}}}],
        },
        "fit": {"train_dataloader": {"data_processor": "Dummy", "batch_size": 8}},
    }
}


@pytest.fixture
def params(tmp_path: Path) -> Path:
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(PARAMS))
    return path


def trainer(params: Path, *words: str) -> Any:
    """Return the ``trainer`` section with these words laid over it."""
    arguments = parse_arguments(["train", f"{params}", *words], params.parent)
    return load_params(params, arguments.overrides()).trainer


@pytest.mark.parametrize(
    "words",
    ["--model.hidden_size 512", "--model.hidden-size=512", "--trainer.init.model.hidden_size=512"],
)
def test_key_is_typed_by_its_section_or_its_path(words: str, params: Path) -> None:
    assert trainer(params, *words.split()).init.model.dump()["hidden_size"] == 512


def test_keys_of_classes_loaders_and_lists(params: Path) -> None:
    """The only optimizer need not be named."""
    found = trainer(
        params,
        *["--optimizer.lr", "1e-3", "--train_dataloader.batch_size=16", "--loop.max_steps", "7"],
        *["--callbacks.LoadCheckpointStates.load_checkpoint_states", "model"],
    )
    assert found.init.optimizer.lr == 0.001
    assert (found.fit.train_dataloader.batch_size, found.init.loop.max_steps) == (16, 7)
    assert found.init.callbacks[-1].load_checkpoint_states == ("model",)


@pytest.mark.parametrize(
    ("words", "code", "guess"),
    [
        ("--mdoel.hidden_size=1", "unknown-key", "model"),
        ("--loop.max_step=1", "unknown-key", "max_steps"),
        ("--loop.max_steps=soon", "wrong-type", None),
        ("--validate.ckpt_path=x.mdl", "missing-key", None),
        ("--loop.max_steps.far=1", "wrong-type", None),
        ("--loop.max_steps=[1", "file-not-yaml", None),
    ],
)
def test_wrong_key_is_refused(words: str, code: str, guess: str | None, params: Path) -> None:
    with raises(ConfigError, code) as caught:
        trainer(params, words)
    assert words.partition("=")[0] in str(caught.value)
    assert guess is None or guess in str(caught.value.remedy)


def test_key_without_value_ends_with_2(params: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--loop.max_steps"], ["--loop.max_steps", "--local"]):
        with pytest.raises(SystemExit) as caught:
            trainer(params, *words)
        assert caught.value.code == 2
        assert "--loop.max_steps: expected one argument" in capsys.readouterr().err


def test_keys_of_the_machine(params: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a named preset change single numbers of it."""
    (params.parent / "cluster.yaml").write_text("machine: {system: CS-3}\n")
    monkeypatch.chdir(params.parent)
    words = ["--machine.swarmx.fan_out", "3", "--runtime.kind=local"]
    words += ["--machine.system.clock_hz=5e8"]
    cluster = cluster_of(parse_arguments(["simulate", f"{params}", *words], params.parent))
    assert (cluster.machine.swarmx.fan_out, cluster.runtime.kind) == (3, "local")
    assert (cluster.machine.system.name, cluster.machine.system.clock_hz) == ("CS-3", 5e8)
    wrong = parse_arguments(["train", f"{params}", "--machine.swarmx.fanout=8"], params.parent)
    with raises(ConfigError, "unknown-key") as caught:
        cluster_of(wrong)
    assert "fan_out" in str(caught.value.remedy)


def test_keys_with_several_values_are_a_study(
    params: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every other key that was typed; a flag that a study lacks is refused."""
    asked: list[dict[str, Any]] = []
    monkeypatch.chdir(params.parent)
    monkeypatch.setattr("waferstream.cli.tools.study.study", lambda **typed: asked.append(typed))
    words = ["--num-csx=1-4:x2", "--machine.swarmx.fan_out", "2,3", "--loop.max_steps=9"]
    main(["simulate", f"{params}", *words, "--json"])
    over = ["machine.swarmx.fan_out=2,3", "loop.max_steps=9", "num_csx=1-4:x2"]
    assert [(typed["params"], typed["over"]) for typed in asked] == [(params, over)]
    with pytest.raises(SystemExit) as ended:
        main(["simulate", f"{params}", *words, "--explain"])
    assert ended.value.code == 2
    assert "--explain" in capsys.readouterr().err


def test_study_of_several_values_takes_the_machine_of_the_folder(
    params: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one value does; and a number of systems that cannot be is handed on, to be refused."""
    asked: list[dict[str, Any]] = []
    (params.parent / "cluster.yaml").write_text("machine: {system: CS-3}\n")
    monkeypatch.chdir(params.parent)
    monkeypatch.setattr("waferstream.cli.tools.study.study", lambda **typed: asked.append(typed))
    main(["simulate", f"{params}", "--num_csx=0", "--machine.swarmx.fan_out=2,3"])
    (typed,) = asked
    assert typed["cluster"] == Path("cluster.yaml")
    assert "num_csx=0" in typed["over"]
