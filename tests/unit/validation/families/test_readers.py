"""Predictions of training that waits for its readers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.timing.reference_rows import row, write_rows
from validation.families.prediction import Predictions, family_of
from validation.families.readers import FAMILIES
from validation.families.registry import FAMILIES as ALL
from validation.rows.reader import read_rows
from validation.rows.row import Row

VIT = {"workload": "ViT-base ImageNet (input-bound)", "global_batch": "2850"}


def read(folder: Path, **fields: str) -> Row:
    known = {"phase": "train", "system": "CS-2", "unit": "samples/s", **fields}
    (found,) = read_rows(write_rows(folder / "rows.csv", row("T1", "training", **known)))
    return found


def test_four_processes_decode_photographs(tmp_path: Path) -> None:
    """N0035: 651 samples/s."""
    vit = read(tmp_path, **VIT)
    family = family_of(vit, ALL)
    assert family is not None
    assert family.name == "input-bound training"
    (compared,) = Predictions.of([vit], FAMILIES).compared
    assert compared.predicted == pytest.approx(651, rel=0.05)


@pytest.mark.parametrize(
    "fields",
    [VIT | {"global_batch": "1024"}, {"workload": "BERT-large MSL128 (input-bound)"}],
    ids=["another batch", "another model"],
)
def test_a_row_without_a_public_configuration_is_skipped(
    tmp_path: Path, fields: dict[str, str]
) -> None:
    """How many processes read is not guessed."""
    (skipped,) = Predictions.of([read(tmp_path, **fields)], FAMILIES).skipped
    assert skipped.code == "readers-not-stated"
