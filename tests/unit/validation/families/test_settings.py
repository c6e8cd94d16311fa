"""Rows tell their model, and the sizes on which the error of a prediction may depend."""

from __future__ import annotations

import pytest

from tests.support.timing.reference_rows import published
from validation.families.settings import model_name, setting_of


@pytest.mark.parametrize(
    ("one", "other"),
    [("T0028", "T0070"), ("T0060", "T0090"), ("T0092", "T0098"), ("G0005", "G0023")],
)
def test_rows_of_one_model_have_one_name(one: str, other: str) -> None:
    """Whatever else their workloads say: phase, release, length."""
    first, second = (model_name(published()[row_id].described()) for row_id in (one, other))
    assert first == second


@pytest.mark.parametrize(
    ("one", "other"),
    [("T0028", "T0029"), ("T0001", "T0005"), ("T0060", "T0062"), ("K0001", "K0016")],
)
def test_other_models_have_other_names(one: str, other: str) -> None:
    """Sizes of a kind are models of their own; algorithms are, too."""
    first, second = (model_name(published()[row_id].described()) for row_id in (one, other))
    assert first != second


@pytest.mark.parametrize(
    ("row_id", "machine", "sizes"),
    [
        ("K0001", "CS-2", {"num_pes": 512, "vector_len": 1}),
        ("T0028", "CS-2", {"tokens": 128, "samples_per_system": 512, "systems": 1}),
        ("T0074", "CS-3", {"parameters": 6.05e9, "tokens": 2048, "systems": 1}),
        ("T0139", "CS-2", {"tokens": 4096, "systems": 1}),
        ("I0001", "CS-3", {"parameters": 8e9}),
        ("G0005", "H100", {"tokens": 2048, "samples_per_system": 8, "systems": 256}),
        ("G0413", "A100", {"tokens": 4096, "systems": 1}),
    ],
)
def test_setting_of_a_row(row_id: str, machine: str, sizes: dict[str, float]) -> None:
    """Sizes that a row does not state are left out."""
    setting = setting_of(published()[row_id].described(), "the family")
    assert (setting.family, setting.machine) == ("the family", machine)
    found = {name: setting.sizes[name] for name in sizes}
    assert found == pytest.approx(sizes, rel=0.02)
