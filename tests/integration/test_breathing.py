"""Launches of a workflow on Ray: resized while they train, and with a weight server killed."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.runs.tiny_run import digest_of, finish, start, write_run
from waferstream.management.model.launched import SYSTEMS, WORKFLOW

KEYS: dict[str, Any] = {
    "init__loop": {"max_steps": 40, "eval_frequency": 0},
    "init__checkpoint": {"steps": None},
    "init__logging": {"log_steps": 1},
    "init__autorestart": {"max_num_restarts": 2},
}


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_resized_launch_survives_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash is that of the run alone, in one process, where nobody is ended or killed."""
    (tmp_path / "alone").mkdir()
    _, alone, _ = finish(write_run(tmp_path / "alone", **KEYS))
    monkeypatch.setenv(WORKFLOW, "wflow-1")
    monkeypatch.setenv(SYSTEMS, "2")
    flags = write_run(tmp_path, kind="ray", **KEYS)
    with start([*flags, "--num_csx=2"]) as process:
        assert process.stdout is not None
        assert any("Step=3," in line for line in process.stdout)
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == -15
    code, out, err = finish([*flags, "--num_csx=1", "--fault=wgt-0@30:kill"])
    assert code == 0, out + err
    assert "wgt-0" in out + err
    assert digest_of(out) == digest_of(alone)
