"""A micro-batch between segments."""

from __future__ import annotations

import pytest
import torch

from csnode.micro_batch import MicroBatch, SramLedger
from tests.support.errors import raises
from tests.support.programs.small_programs import segment
from waferstream.core.errors import ApplianceResourceExhausted

SEGMENT = segment(
    0,
    inputs=("x",),
    outputs=("double", "triple"),
    gradients=("w",),
    results=((1, "second"), (0, "first")),
)


def kernel(weight: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return 2 * x, 3 * x, weight + 1, torch.tensor(0.25), torch.tensor(4)


def test_micro_batch_run_stores_outputs_gradients_results() -> None:
    """A kernel returns outputs, then gradients, then results by position."""
    batch = MicroBatch(0, {"x": torch.tensor([1.0])})
    batch.run(SEGMENT, kernel, [torch.tensor([5.0])])
    assert batch.values["double"].item() == 2
    assert batch.values["triple"].item() == 3
    assert batch.gradients == {"w": torch.tensor([6.0])}
    batch.read_numbers()
    assert batch.results == {1: 0.25, 0: 4.0}


def test_micro_batch_keeps_gradients_of_the_last_segment() -> None:
    """Gradients of earlier segments are not kept."""
    batch = MicroBatch(0, {"x": torch.tensor([1.0])})
    batch.run(SEGMENT, kernel, [torch.tensor([5.0])])
    batch.run(segment(1, inputs=("double",)), lambda x: (), [])
    assert batch.gradients == {}


def test_micro_batch_run_refuses_too_few_results() -> None:
    """No value is stored under a wrong name."""
    batch = MicroBatch(0, {"x": torch.tensor([1.0])})
    with pytest.raises(ValueError, match="zip"):
        batch.run(SEGMENT, lambda *_: (torch.tensor(1.0),), [torch.tensor([5.0])])


def test_micro_batch_weighs_its_results() -> None:
    """A result that is a mean over labels counts with its weight, any other as it is."""
    batch = MicroBatch(0, {"x": torch.tensor([1.0])}, weights={1: 2.0})
    batch.run(SEGMENT, kernel, [torch.tensor([5.0])])
    batch.read_numbers()
    assert batch.results == {1: 0.5, 0: 4.0}


def test_micro_batch_without_labels_contributes_zero() -> None:
    """Its mean and gradients are not numbers."""
    batch = MicroBatch(0, {"x": torch.tensor([1.0])}, weights={0: 0.0}, has_labels=False)
    batch.run(
        SEGMENT, lambda w, x: (x, x, w / 0, x / 4, torch.tensor(float("nan"))), [torch.ones(1)]
    )
    batch.read_numbers()
    assert batch.results == {1: 0.25, 0: 0.0}
    assert batch.gradients == {"w": torch.zeros(1)}


def test_micro_batch_num_bytes_counts_each_storage_once() -> None:
    """Views of one tensor count once; numbers and dropped values do not count."""
    x = torch.zeros(4, 4)
    batch = MicroBatch(0, {"x": x, "row": x[0], "y": torch.zeros(2), "random_key": 7})
    assert batch.num_bytes == 64 + 8
    batch.drop(["x", "y"])
    assert batch.num_bytes == 64
    batch.drop(["row"])
    assert batch.num_bytes == 0


def test_sram_ledger_peaks_by_kind_and_in_total() -> None:
    """The peak of the total is that of one moment, not the sum of the peaks."""
    ledger = SramLedger("csx-0", 100)
    ledger.change("weights", 60)
    ledger.change("weights", -50)
    ledger.change("activations", 40)
    ledger.change("weights", 20)
    assert ledger.peak_bytes == {"weights": 60, "activations": 40, "total": 70}


def test_sram_ledger_allows_the_full_capacity() -> None:
    """Every byte can be used; forgotten bytes are free again."""
    ledger = SramLedger("csx-0", 100)
    for _ in range(3):
        ledger.change("gradients", 100)
        ledger.change("gradients", -100)
    assert ledger.peak_bytes["total"] == 100


def test_lease_outlives_the_jobs() -> None:
    """Until it ends; one that does not fit changes nothing."""
    ledger = SramLedger("csx-0", 100)
    ledger.lease("session-1", 30)
    ledger.change("activations", 70)
    ledger.change("activations", -70)
    with raises(ApplianceResourceExhausted, "sram-ledger-exceeded"):
        ledger.lease("session-2", 71)
    ledger.lease("session-1", 20)
    ledger.lease("session-2", 80)
    ledger.lease("session-1", 0)
    ledger.lease("session-1", 0)
    ledger.change("weights", 20)


def test_sram_ledger_refuses_more_than_the_capacity() -> None:
    """The error has the system, the sizes, the capacity and a remedy."""
    ledger = SramLedger("csx-3", 3 * 1024)
    ledger.change("weights", 1024)
    with raises(ApplianceResourceExhausted, "sram-ledger-exceeded") as caught:
        ledger.change("activations", 2049)
    error = caught.value
    assert "csx-3" in error.what
    assert error.value == "weights 1.0 KiB, activations 2.0 KiB"
    assert "3.0 KiB" in str(error.rule)
    assert "micro_batch_size" in str(error.remedy)
