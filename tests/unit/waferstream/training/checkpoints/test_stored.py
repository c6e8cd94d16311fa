"""A run whose folder is in an object store goes on from it on another host."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.support.host.object_store import object_store
from tests.support.runs.tiny_run import run_here, write_run
from waferstream.core.stores import local_folder
from waferstream.training.checkpoints.stored import without_old_checkpoints

URL = "s3://bucket/run"


def test_checkpoint_of_the_last_step_is_enough() -> None:
    names = ["checkpoints_index.yaml", "checkpoint_10.mdl", "checkpoint_9.mdl", "losses.csv"]
    assert sorted(without_old_checkpoints(names)) == [
        "checkpoint_10.mdl",
        "checkpoints_index.yaml",
        "losses.csv",
    ]


@pytest.mark.nightly
def test_run_goes_on_where_the_store_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where this host has nothing of it; a bucket that is not there ends it before a step."""
    flags = [*write_run(tmp_path, init__loop={"max_steps": 1}), "--mode=train"]
    flags = [each for each in flags if not each.startswith("--model_dir")]
    with object_store("bucket"):
        code, _, err = run_here([*flags, "--model_dir=s3://none/run"], capsys)
        assert (code, "[store-denies]" in err) == (1, True), err

        def run(steps: int) -> tuple[set[str], Any]:
            words = (f"--model_dir={URL}", f"--max_steps={steps}")
            code, out, err = run_here([*flags, *words], capsys)
            assert code == 0, err
            found = fsspec.filesystem("s3").ls(URL, refresh=True)
            return {Path(name).name for name in found}, out

        names, _ = run(1)
        assert {"checkpoint_1.mdl", "checkpoints_index.yaml"} <= names
        shutil.rmtree(local_folder(URL))
        names, _ = run(2)
        assert {"checkpoint_1.mdl", "checkpoint_2.mdl"} <= names
