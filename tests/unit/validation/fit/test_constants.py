"""The page on fidelity shows every sourced number of the clock."""

from timing.hardware import CS2, CS3
from validation.fit.constants import constants


def test_numbers_of_both_systems_are_found_with_source_and_status():
    """Each where it is stated: a CS-3 has its own core count and a CS-2's I/O bandwidth."""
    found = {(one.holder, one.name): one for one in constants()}
    cores = found["CS2", "cores"]
    assert (cores.value, cores.status) == (CS2.cores, "published")
    assert cores.source
    assert found["CS3", "cores"].value == CS3.cores
    assert ("CS3", "io_bandwidth_bytes_per_s") not in found
    assert ("WSE2", "hop_cycles") in found


def test_every_constant_has_a_known_status_and_a_source():
    """A number without a source could not be cited."""
    for one in constants():
        assert one.status in {"published", "derived", "fitted", "assumed"}
        assert one.source
        assert one.title


def test_a_constant_answers_to_its_name_with_and_without_its_holder():
    """A fit may name a constant of one system or of all."""
    (one,) = [one for one in constants() if one.called("CS3.cores")]
    assert one.called("cores")
    assert not one.called("CS2.cores")
