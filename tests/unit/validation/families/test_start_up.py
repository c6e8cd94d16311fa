"""Predictions of start-up times."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.timing.reference_rows import row, write_rows
from validation.families.prediction import Predictions
from validation.families.start_up import FAMILIES, compiled, published, sent
from validation.rows.reader import read_rows
from validation.rows.row import Row

LLAMA2 = "send initial weights Llama2-7B (13.2-20.5)"


Read = Callable[..., Row]


def _start_up_row(workload: str, system: str = "CS-3", **fields: str) -> dict[str, str]:
    known = {"unit": "s", "phase": "setup", **fields}
    return row("T1", "training", workload=workload, system=system, **known)


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read a start-up row from its workload and other columns."""

    def read(workload: str, **fields: str) -> Row:
        path = write_rows(tmp_path / "rows.csv", _start_up_row(workload, **fields))
        (found,) = read_rows(path)
        return found

    return read


def _predicted(row: Row) -> tuple[str, float]:
    predictions = Predictions.of([row], FAMILIES)
    assert not predictions.failed
    (compared,) = predictions.compared
    return compared.family, compared.predicted


def test_start_up_families_follow_from_the_workload(read: Read) -> None:
    """Compiling, programming, initial weights and checkpoints, by the words of the row."""
    for workload, system, family, time_s in (
        ("device programming (85-136)", "CS-2", "start-up programming", 110),
        ("device programming", "CS-3", "start-up programming", 230),
        (LLAMA2, "CS-3", "start-up initial weights", 17.0),
        ("save checkpoint Llama2-7B (464-584)", "CS-3", "start-up checkpoint", 550),
        ("compile Llama2-7B (no cache)", "CS-3", "start-up compile", 3350),
    ):
        name, found_s = _predicted(read(workload, system=system))
        assert name == family
        assert found_s == pytest.approx(time_s, rel=0.05)


def test_initial_weights_take_longer_in_earlier_releases(read: Read) -> None:
    """The release is read from its column or from the text behind the model's name."""
    names = ("", " (R2.3.0)", " (R2.0.3)", " (R1.7)")
    newest, new, old, oldest = (
        _predicted(read(f"send initial weights GPT-J 6B{name}", system="CS-2"))[1] for name in names
    )
    assert newest == new < old < oldest
    for software in ("R1.7", "rel-1.9.1"):
        row = read("send initial weights GPT-J 6B", software=software, system="CS-2")
        assert _predicted(row)[1] == oldest


@pytest.mark.parametrize(
    ("workload", "parameters"),
    [
        ("send initial weights GPT-J 6B (R1.7)", 6.05e9),
        ("send initial weights Llama2-7B (13.2-20.5)", 6.74e9),
        ("save checkpoint Llama-3.1-8B", 8.03e9),
        ("send initial weights ESM-2 35M", 33.5e6),
        ("send initial weights ESM-2 650M", 651e6),
        ("save checkpoint GPT-3 111M", 111e6),
        ("save checkpoint GPT-3-style 1.3B", 1.3e9),
        ("save checkpoint Mistral-7B", 7.24e9),
        ("send initial weights GPT-J", 6.05e9),
        ("send initial weights GPT-2 XL", 1.558e9),
        ("save checkpoint DiT-XL/2", 675e6),
    ],
)
def test_published_follows_from_the_name(read: Read, workload: str, parameters: float) -> None:
    """The published size if there is one, else the size in the name."""
    assert published(read(workload)).parameters == parameters


def test_published_prefers_the_column(read: Read) -> None:
    """The column model_params_b is in billions; the tensors are those of the named model."""
    assert published(read(LLAMA2, model_params_b="0.5")) == (5e8, 291)


def test_sent_counts_the_state_of_a_checkpoint(read: Read) -> None:
    """Two moments of AdamW beside each weight, where the log continues a run."""
    plain, continued = (
        sent(read("send initial weights GPT-J 6B", locator=locator))
        for locator in ("18:32 to 18:35", "18:32 to 18:35, with AdamW state from a checkpoint")
    )
    assert continued == (3 * plain[0], 3 * plain[1])


def test_compiled_follows_from_the_columns_or_from_a_known_log(read: Read) -> None:
    """Width, length and batch; a stated micro-batch is the only size that is tried."""
    shape = {"hidden": "768", "seq_len": "197", "global_batch": "2850"}
    vit = "compile ViT-base (no cache)"
    assert compiled(read(vit, **shape, micro_batch_per_csx="2850")) == (768 * 197, (2850,))
    assert len(compiled(read(vit, **shape)).sizes) > 1
    assert compiled(read("compile ESM-2 35M (no cache)")) == (480 * 1026, (64,))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"workload": "save checkpoint of something"}, "model-size-not-stated"),
        ({"workload": "compile Llama2-7B"}, "no-calibration-row"),
        ({"workload": "compile a model (no cache)"}, "shape-not-stated"),
        ({"workload": LLAMA2, "system": "CS-1"}, "system-unknown"),
        ({"workload": LLAMA2, "unit": "bytes"}, "unit-not-predicted"),
        ({"workload": "load checkpoint Llama2-7B"}, "no-calibration-row"),
    ],
)
def test_start_up_rows_are_skipped_with_the_reason(
    read: Read, fields: dict[str, str], code: str
) -> None:
    """Nothing is guessed."""
    (skipped,) = Predictions.of([read(**fields)], FAMILIES).skipped
    assert skipped.code == code


@pytest.mark.parametrize(
    ("spelling", "plain"),
    [
        ("saving checkpoint Llama2-7B", "save checkpoint Llama2-7B"),
        ("save final checkpoint Llama2-7B", "save checkpoint Llama2-7B"),
        ("Programming the device", "device programming"),
        ("Sending initial weights Llama2-7B", LLAMA2),
    ],
)
def test_start_up_rows_are_known_in_other_words(read: Read, spelling: str, plain: str) -> None:
    """The same part of the start-up, in minutes if that is the unit."""
    assert _predicted(read(spelling)) == _predicted(read(plain))
    assert _predicted(read(spelling, unit="min"))[1] == pytest.approx(
        _predicted(read(plain))[1] / 60
    )


def test_start_up_families_ignore_other_rows(read: Read, tmp_path: Path) -> None:
    """A training row of the same model, and a kernel row."""
    kernel = read_rows(write_rows(tmp_path / "kernels.csv", row()))
    for other in (read(LLAMA2, phase="train"), *kernel):
        assert not any(family.knows(other) for family in FAMILIES)
