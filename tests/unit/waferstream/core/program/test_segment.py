"""Segments as data: the wafer memory of a micro-batch."""

from waferstream.core.program.segment import Footprint


def test_footprint_covering_is_enough_for_both() -> None:
    """It takes the larger fixed part and the larger part per sample."""
    flat, steep = Footprint(100, 1), Footprint(10, 7)
    assert flat.covering(steep) == steep.covering(flat) == Footprint(100, 7)
