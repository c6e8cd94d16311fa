"""The SRAM ledger: what is resident, its peaks, and the refusal of what does not fit."""

import pytest

from csnode.sram import SramLedger
from wsc.core.errors import ApplianceResourceExhausted


def test_peaks_by_kind_and_in_total():
    """The peak of the total is that of one moment, not the sum of the peaks."""
    ledger = SramLedger("csx-0", 100)
    ledger.change("weights", 60)
    ledger.change("weights", -50)
    ledger.change("activations", 40)
    ledger.change("weights", 20)
    assert ledger.peak_bytes == {"weights": 60, "activations": 40, "total": 70}


def test_all_of_the_sram_may_be_used():
    """Up to the last byte; what was forgotten makes role."""
    ledger = SramLedger("csx-0", 100)
    for _ in range(3):
        ledger.change("gradients", 100)
        ledger.change("gradients", -100)
    assert ledger.peak_bytes["total"] == 100


def test_what_does_not_fit_is_refused_with_numbers():
    """Which system, how much of what, how much there is, and what to do."""
    ledger = SramLedger("csx-3", 3 * 1024)
    ledger.change("weights", 1024)
    with pytest.raises(ApplianceResourceExhausted) as caught:
        ledger.change("activations", 2049)
    error = caught.value
    assert error.what == "csx-3 needs 3.0 KiB of SRAM"
    assert error.value == "weights 1.0 KiB, activations 2.0 KiB"
    assert "3.0 KiB" in error.rule
    assert "micro_batch_size" in error.remedy
