"""A run whose program is in the cache starts without recording its step, and trains the same."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.support.runs.tiny_run import digest_of, run_here, write_run
from waferstream.compiler.capture.capture import capture

SHORT: dict[str, Any] = {"init__loop": {"max_steps": 3, "eval_frequency": 2, "eval_steps": 1}}
TRAIN = "--mode=train"
WITHOUT_COMPILER = """
import sys
from importlib import import_module
from appliance.ray.forks.fork_server import PRELOADED
from waferstream.cli.main import main

for name in (*PRELOADED, "waferstream.training.session"):
    import_module(name)
pictures = [name for name in ("matplotlib", "jinja2") if name in sys.modules]
main(sys.argv[1:])
compiler = ("waferstream.compiler.capture.capture", "torch._dynamo", "sympy")
print(pictures, [name for name in compiler if name in sys.modules], file=sys.stderr)
"""
SCALED: dict[str, Any] = {
    **SHORT,
    "init__precision": {
        "fp16_type": "float16",
        "loss_scaling_factor": "dynamic",
        "initial_loss_scale": 2.0**30,  # overflows, so that steps are skipped
        "max_gradient_norm": 0.5,
    },
    "init__schedulers": [
        {"LinearLR": {"initial_learning_rate": 0.1, "end_learning_rate": 0.0, "total_iters": 5}}
    ],
    "init__optimizer": {"AdamW": {"weight_decay": 0.1}},
}


@contextmanager
def captures() -> Iterator[list[object]]:
    """Yield a list to which each recording of a step is appended."""
    made: list[object] = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        made.append(args)
        return capture(*args, **kwargs)

    with mock.patch("waferstream.compiler.derivation.recording.capture", counted):
        yield made


def run(
    folder: Path, capsys: pytest.CaptureFixture[str], model_dir: str, *flags: str, **changes: Any
) -> tuple[str, int]:
    """Train and evaluate; return the digest of the weights, and the recordings of steps.

    A step is recorded for a micro-batch, and for the batch.
    """
    words = write_run(folder, **changes)
    cache = f"--compile_dir={folder / 'cache'}"
    model = f"--model_dir={folder / model_dir}"
    with captures() as made:
        code, out, err = run_here([*words[:2], model, cache, *flags], capsys)
    assert code == 0, err
    return digest_of(out), len(made)


def test_second_run_imports_no_compiler_and_has_the_same_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither does the process that forks the roles; pictures wait for the end of the run."""
    first, recorded = run(tmp_path, capsys, "one", **SHORT)
    assert recorded == 4
    words = [*write_run(tmp_path, **SHORT)[:2], f"--model_dir={tmp_path / 'two'}"]
    again = subprocess.run(
        [sys.executable, "-c", WITHOUT_COMPILER, *words, f"--compile_dir={tmp_path / 'cache'}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert again.stderr == "[] []\n"
    assert digest_of(again.stdout) == first


def test_second_run_records_nothing_and_has_the_same_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Clipping, schedules, loss scale and optimizer follow from the rest of the step."""
    mode = "--mode=train_and_eval"
    first, recorded = run(tmp_path, capsys, "one", mode, **SCALED)
    assert recorded == 4
    again, recorded = run(tmp_path, capsys, "two", mode, **SCALED)
    assert (again, recorded) == (first, 0)
    one, two = (
        next((tmp_path / name).glob("*/executors/000001/available_tensor_names.txt")).read_text()
        for name in ("one", "two")
    )
    assert one == two != ""


def test_a_start_is_found_by_the_same_step_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not with another model, and not by other code."""
    run(tmp_path, capsys, "first", TRAIN, **SHORT)

    def recorded(name: str, *flags: str, **changes: Any) -> int:
        return run(tmp_path, capsys, name, TRAIN, *flags, **{**SHORT, **changes})[1]

    assert recorded("model", init__model__filter_size=48) == 2
    with mock.patch("waferstream.training.setup.steps.sources_digest", return_value="changed"):
        assert recorded("source") == 2
    assert recorded("other steps", init__loop__max_steps=2) == 0


def test_another_number_of_systems_records_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its program is a new one all the same, and is found the next time."""
    first, recorded = run(tmp_path, capsys, "one", TRAIN, **SHORT)
    assert recorded == 2
    names = []
    for model_dir in ("two", "again"):
        assert run(tmp_path, capsys, model_dir, TRAIN, "--num_csx=2", **SHORT) == (first, 0)
        names.append(len(list((tmp_path / "cache").glob("cs_*"))))
    assert names == [2, 2]
