"""Steps that are not finite: stopped at, skipped, or rolled back; the rest has the same bits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.nightly import nightly
from tests.support.runs.tiny_run import digest_of, run_here, write_run

POISONED = 4
"""The batch of step 5."""


def run(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    policy: dict[str, Any] | None,
    *,
    steps: int = 8,
    num_csx: int = 1,
    checkpoint_every: int = 2,
    restarts: int | None = None,
    states: str = "all",
    flags: Sequence[str] = (),
    **loader: Any,
) -> tuple[int, str, str]:
    """Return exit code and output of a run on poisoned data."""
    section = {"class": "tests.support.models.poisoned_data:make_loader", "batch_size": 6, **loader}
    folder.mkdir(exist_ok=True)
    callbacks: list[dict[str, Any]] = [{"LoadCheckpointStates": {"load_checkpoint_states": states}}]
    if policy is not None:
        callbacks.append({"NotFiniteSteps": policy})
    own = write_run(
        folder,
        init__model={"class": "tests.support.models.poisoned_data:Net"},
        init__optimizer={"AdamW": {"lr": 0.01}},
        init__precision={"enabled": False},
        init__loop={"max_steps": steps},
        init__checkpoint={"steps": checkpoint_every},
        init__logging={"log_steps": 3},
        init__callbacks=callbacks,
        init__autorestart=restarts and {"max_num_restarts": restarts},
        fit={"train_dataloader": section},
    )
    return run_here([*own, *flags, f"--num_csx={num_csx}"], capsys)


def digest(folder: Path, capsys: pytest.CaptureFixture[str], *args: Any, **options: Any) -> str:
    """Return the digest of a run that ends well."""
    code, out, err = run(folder, capsys, *args, **options)
    assert code == 0, err
    return digest_of(out)


def test_run_stops_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(tmp_path / "run", capsys, None, poisoned=[POISONED])
    assert code == 1
    assert "-not-finite]" in err


@pytest.mark.parametrize("num_csx", [1, 3])
def test_skipped_step_changes_nothing(
    num_csx: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As if there were one step and one batch less, on any number of systems."""
    policy = {"action": "skip"}
    found = digest(tmp_path / "a", capsys, policy, num_csx=num_csx, poisoned=[POISONED])
    assert found == digest(tmp_path / "b", capsys, None, steps=7, missing=[POISONED])


@pytest.mark.parametrize(
    ("poisoned", "kind", "num_csx", "restarts"),
    [
        ([POISONED], "loss", 1, None),
        ([POISONED, POISONED + 1, POISONED + 3], "gradient", 3, 2),
        *nightly(([0, 1], "gradient", 1, None)),
    ],
)
def test_rolled_back_run_has_the_bits_of_other_data(
    poisoned: Sequence[int],
    kind: str,
    num_csx: int,
    restarts: int | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As if the bad batches had never been there, and with as many steps."""
    found = digest(
        tmp_path / "a",
        capsys,
        {"action": "roll_back"},
        checkpoint_every=4,
        num_csx=num_csx,
        restarts=restarts,
        poisoned=poisoned,
        kind=kind,
    )
    assert found == digest(tmp_path / "b", capsys, None, missing=poisoned)


@pytest.mark.parametrize(("states", "poisoned"), [("all", 2), *nightly(("model", 0))])
def test_run_goes_back_to_the_checkpoint_that_it_started_from(
    states: str, poisoned: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not to a newer one that an earlier run has left, and with the states that it took."""
    digest(tmp_path / "a", capsys, None)
    checkpoint = tmp_path / "a" / "model_dir" / "checkpoint_2.mdl"
    start = [f"--checkpoint_path={checkpoint}", "--allow_changes"]
    policy = {"action": "roll_back"}
    found = digest(
        tmp_path / "a", capsys, policy, checkpoint_every=4, states=states, flags=start,
        poisoned=[poisoned],
    )  # fmt: skip
    assert found == digest(
        tmp_path / "b", capsys, None, states=states, flags=start, missing=[poisoned]
    )


def test_clean_data_has_the_same_bits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The agreement among servers changes nothing."""
    found = digest(tmp_path / "a", capsys, {"action": "skip"}, steps=3)
    assert found == digest(tmp_path / "b", capsys, None, steps=3)


@pytest.mark.parametrize("action", ["skip", "roll_back"])
def test_too_many_steps_end_the_run(
    action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = {"action": action, "max_times": 1}
    code, _, err = run(tmp_path / "run", capsys, policy, poisoned=[POISONED, POISONED + 1])
    assert code == 1
    assert "[too-many-steps-not-finite]" in err
