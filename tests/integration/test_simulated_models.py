"""Every model of the zoo: simulations give the emulated times of runs, and systems the same bits.

Batches are uneven, and smaller clusters take several rounds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from modelzoo.models.registry import MODELS, group_of_samples
from tests.support.models.model_sections import section_of
from tests.support.models.tiny_dino import DINO
from tests.support.models.tiny_models import TINY_MODELS, tiny
from tests.support.runs.tiny_run import run_here, write_run
from tests.support.runs.uneven_samples import OWN, random_data

Capture = pytest.CaptureFixture[str]
NAMES = (
    *TINY_MODELS,
    *("t5", "transformer", "fc_mnist", "dpo", "llava", "multimodal_simple", "dpr", "dino"),
)
EVERY = pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.nightly) for n in NAMES])


def write_model(folder: Path, name: str, size: int) -> list[str]:
    """Write a run of a small model; return its flags.

    Args:
        folder: The folder of the run.
        name: The model.
        size: Samples of a micro-batch, of five in a batch; or groups of samples, of four.
    """
    section = _section(name) | OWN.get(name, {})
    group = group_of_samples(section)
    data = random_data(section) | {"batch_size": 5 if group == 1 else 4 * group}
    flag = {"csx.performance.micro_batch_size": size * group}
    changes: dict[str, Any] = {
        "init__model": section,
        "init__callbacks": [{"ScopedTrainFlags": flag}],
        "init__precision": {"precision_opt_level": size - 1, "max_gradient_norm": 1.0},
        "fit__train_dataloader": data,
        "fit__val_dataloader": data,
    }
    return write_run(folder, **changes)


def _section(name: str) -> dict[str, Any]:
    if name == "dino":
        return DINO
    return tiny(name) if name in TINY_MODELS else section_of(name)


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


@pytest.mark.parametrize("name", ["t5", "llava"])
def test_models_of_two_parts_take_the_time_of_their_simulation(
    name: str, tmp_path: Path, capsys: Capture
) -> None:
    check(tmp_path, name, 2, (1, 3), capsys)
