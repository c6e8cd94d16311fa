"""The turn of a step takes a sample at a time."""

from tests.support.small_programs import program, segment
from timing.hardware import CS2
from timing.sram import data_bytes, largest_micro_batch, moments, recomputable
from timing.sram.turn import turn_of
from wsc.core.program import Footprint, Stash


def stash(name, size):
    return (Stash((name,), Footprint(0, size)),)


STEP = program(
    segments=(
        segment(0, layer="embedding", outputs=("x",), stash=stash("x", 1)),
        segment(1, layer="decoder.0", inputs=("x",), outputs=("y",), stash=stash("y", 1)),
        segment(
            2,
            layer="head",
            inputs=("y",),
            outputs=("logits",),
            stash=stash("logits", 100),
            working=Footprint(7, 200),
        ),
        segment(
            3,
            "backward",
            "head",
            inputs=("logits", "y"),
            outputs=("dy",),
            stash=stash("dy", 1),
            working=Footprint(0, 200),
        ),
        segment(4, "backward", "decoder.0", inputs=("dy", "x"), working=Footprint(0, 2)),
    )
)


def test_it_lies_between_the_last_repeated_layer_and_its_backward_pass() -> None:
    """A step without repeated layers has none."""
    assert turn_of(STEP) == range(2, 4)
    assert not turn_of(program())


def test_what_stays_inside_is_there_for_one_sample() -> None:
    """However large the micro-batch; what comes in and goes on is there for all samples."""
    inside = [moment.footprint for moment in moments(STEP)][2:4]
    assert inside == [Footprint(7 + 200, 2), Footprint(100 + 200, 2)]
    assert moments(STEP)[4].footprint == Footprint(0, 4)


def test_so_it_bounds_the_micro_batch_no_more() -> None:
    """With a head that makes a hundred times what a layer makes, a layer decides."""
    assert largest_micro_batch(STEP, CS2) == data_bytes(CS2) // 4


def test_nothing_in_it_is_worth_recomputing() -> None:
    """One sample's internals are all there is to save."""
    assert 2 not in recomputable(STEP)
