"""Each role writes a file of its own at the level of its kind, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.role_log import level_of, open_log, with_logs
from appliance.spec import ClusterSpec, RoleLogSpec, RuntimeSpec
from tests.support.runs.tiny_run import digest_of, run_here, write_run


def test_level_of_a_role_is_that_of_its_task() -> None:
    log = RoleLogSpec(levels={"wgt": "DEBUG", "act": 20})
    assert [level_of(role, log) for role in ("wgt-1", "csx-0", "br-0")] == ["DEBUG", 20, None]


def test_role_without_level_has_no_shell() -> None:
    assert with_logs([], RoleLogSpec()) == []
    assert ClusterSpec().runtime == RuntimeSpec(log=RoleLogSpec())


def test_roles_log_at_their_level_and_change_no_bit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through the flag: weight servers every message, switches their jobs, workers nothing."""
    flags = write_run(tmp_path, init__loop={"max_steps": 2}, init__checkpoint={"steps": 2})
    code, out, err = run_here([*flags, "--mode=train", "--num_csx=2"], capsys)
    assert code == 0, err
    levels = ["--wsc_log_level", "wgt=DEBUG", "br=INFO", "crd=INFO", "wrk.execute=ERROR"]
    fresh = [flag for flag in flags if "model_dir" not in flag]
    model_dir = tmp_path / "logged"
    logged = [*fresh, f"--model_dir={model_dir}", "--mode=train", "--num_csx=2", *levels]
    code, again, err = run_here(logged, capsys)
    assert code == 0, err
    assert digest_of(again) == digest_of(out)
    folder = (model_dir / "latest_run.log").resolve().parent / "roles"
    texts = {path.stem: path.read_text() for path in folder.iterdir()}
    assert {name.split("-")[0] for name in texts} == {"wgt", "br", "crd"}
    assert "Begin train steps 2 to 2" in texts["wgt-0"]
    assert "DEBUG wgt-0: " in texts["wgt-0"]
    assert "DEBUG" not in texts["br-0"]
    assert "tensors of model on wgt-0" in texts["crd-0"]


def test_role_whose_log_cannot_be_written_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file is where the folder of the logs would be."""
    (tmp_path / "roles").touch()
    log = open_log(tmp_path / "roles", "wgt-0", "INFO")
    log.info("lost")
    assert "The run goes on" in capsys.readouterr().err
