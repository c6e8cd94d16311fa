"""All constants of the timing models are found with value, status and source."""

from __future__ import annotations

from validation.report.constants import constants
from waferstream.machine.hardware import CS2, CS3


def test_constants_belong_to_the_class_that_declares_them() -> None:
    """A CS-3 has its own core count and a CS-2's I/O bandwidth."""
    found = {(one.holder, one.name): one for one in constants()}
    cores = found["CS2", "cores"]
    assert (cores.value, cores.status) == (CS2.cores, "published")
    assert cores.source
    assert found["CS3", "cores"].value == CS3.cores
    assert ("CS3", "io_bandwidth_bytes_per_s") not in found
    assert ("WSE2", "hop_cycles") in found


def test_constants_have_a_known_status_and_a_source() -> None:
    """A number without a source could not be cited."""
    for one in constants():
        assert one.status in {"published", "derived", "fitted", "assumed"}
        assert one.source
        assert one.title


def test_constants_are_called_by_name_or_holder_and_name() -> None:
    """A fit may name a constant of one system or of all."""
    (one,) = [one for one in constants() if one.called("CS3.cores")]
    assert one.called("cores")
    assert not one.called("CS2.cores")
