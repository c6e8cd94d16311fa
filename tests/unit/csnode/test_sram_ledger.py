"""The ledger of a system's SRAM."""

from csnode.sram_ledger import SramLedger
from tests.support.errors import raises
from waferstream.core.errors import ApplianceResourceExhausted


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
