"""Fine-tuning of adapters is predicted from the row's model, with zeros in its frozen weights."""

from __future__ import annotations

import pytest

from tests.support.timing.reference_rows import predict, tiny_training_row
from validation.families import adaptation, training
from validation.rows.row import CannotPredict

WIDE = {"hidden": "512", "heads": "8", "seq_len": "512"}


def test_adapters_train_faster_than_the_model_and_zeros_save_more() -> None:
    """Frozen weights have no gradients, and their zeros trigger no work."""
    whole = predict(tiny_training_row(**WIDE), training.FAMILIES)
    dense, sparse = (
        predict(tiny_training_row(**WIDE, phase="lora", sparsity_pct=zeros), adaptation.FAMILIES)
        for zeros in ("", "75")
    )
    assert whole < dense < sparse


@pytest.mark.parametrize(
    ("change", "code"),
    [({"hidden": ""}, "shape-not-stated"), ({"global_batch": ""}, "column-empty")],
)
def test_rows_without_shape_or_batch_give_the_reason(change: dict[str, str], code: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(CannotPredict) as reason:
        predict(tiny_training_row(phase="lora", **change), adaptation.FAMILIES)
    assert reason.value.code == code
