"""Every model of the zoo: simulations give the emulated times of runs, and systems the same bits.

Batches are uneven, and smaller clusters take several rounds.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.models.zoo_runs import NAMES, write_model
from tests.support.nightly import nightly
from tests.support.runs.tiny_run import run_here
from waferstream.workload.models import MODELS

Capture = pytest.CaptureFixture[str]
EVERY = pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.nightly) for n in NAMES])


def steps_ps(flags: list[str], counts: str, capsys: Capture) -> dict[int, int]:
    """Return the predicted time of the first two steps by the number of systems."""
    code, _, err = run_here([*flags, "--simulate", f"--sweep={counts}"], capsys)
    assert code == 0, err
    folder = Path(flags[-1].removeprefix("--model_dir="))
    simulation = json.loads((folder / "simulation" / "simulation.json").read_text())
    found = {}
    for point in simulation["points"]:
        first, *later = point["prediction"]["steps_ps"]
        found[point["num_csx"]] = first + (later or [first])[0]
    return found


def trained(flags: list[str], num_csx: int, capsys: Capture) -> tuple[int, str]:
    """Return the emulated time of two steps, and the digest of the weights."""
    words = [*flags, "--mode=train", "--num_steps=2", f"--num_csx={num_csx}"]
    code, _, err = run_here(words, capsys)
    assert code == 0, err
    folder = Path(flags[-1].removeprefix("--model_dir="))
    summary = json.loads((folder / "run_summary.json").read_text())
    return summary["emulated"]["total_ps"], summary["weights_sha256"]


def check(folder: Path, name: str, size: int, counts: tuple[int, ...], capsys: Capture) -> None:
    """Compare predicted with emulated times, and the weights of all cluster sizes."""
    digests = set()
    predicted = steps_ps(write_model(folder, name, size), f"1-{max(counts)}", capsys)
    for count in counts:
        (folder / str(count)).mkdir()
        total_ps, digest = trained(write_model(folder / str(count), name, size), count, capsys)
        assert total_ps == predicted[count], f"{count} systems"
        digests.add(digest)
    assert len(digests) == 1


@pytest.mark.nightly
def test_every_model_of_the_zoo_is_here() -> None:
    """Names that share a class are left out."""
    classes = {family.module for family in MODELS.values()}
    assert {MODELS[name].module for name in NAMES} == classes


@EVERY
@pytest.mark.parametrize(("size", "counts"), [(1, (1, 2, 3, 4)), (2, (1, 2))], ids=["1", "2"])
def test_every_model_takes_the_time_of_its_simulation(
    name: str, size: int, counts: tuple[int, ...], tmp_path: Path, capsys: Capture
) -> None:
    """To the picosecond, of single samples in fp32, and of two samples and one in bf16."""
    check(tmp_path, name, size, counts, capsys)


@pytest.mark.parametrize("name", ["t5", *nightly("llava")])
def test_models_of_two_parts_take_the_time_of_their_simulation(
    name: str, tmp_path: Path, capsys: Capture
) -> None:
    check(tmp_path, name, 2, (1, 3), capsys)
