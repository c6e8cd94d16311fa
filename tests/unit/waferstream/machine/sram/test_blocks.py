"""Segments without room run in as few blocks as it takes, and hold whole what crosses these."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.errors import raises
from tests.support.programs.layered_steps import GB, layers
from tests.support.programs.small_programs import program, segment
from tests.support.timing.machines import alone
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.program.program import Program, TensorSpec
from waferstream.core.program.segment import Footprint, OpWork, Stash
from waferstream.core.program.stream_plan import plan_streams
from waferstream.machine.hardware import CS2, MachineSpec, override
from waferstream.machine.sram import SramPlan, code_bytes, largest_with_recompute, plan_sram

TOKENS = 8
PRODUCT = OpWork("mm", "matmul", 1, (1, TOKENS, 4, 4), streams=True)
ATTENTION = OpWork("flash", "attention", 1, (2, TOKENS, TOKENS, 3))
BATCH_NORM = OpWork("native_batch_norm", "norm", 1, (TOKENS, 4))


def with_room(num_bytes: int) -> MachineSpec:
    return alone(override(CS2, sram_bytes=code_bytes(CS2) + num_bytes))


def layer(*work: OpWork, fixed: int = 0, samples: int = 1) -> Program:
    """One layer of samples of 8 tokens that makes 1,000 bytes of each, and gives on 200 of them."""
    step = program(
        segments=(
            segment(
                0,
                outputs=("y",),
                stash=(Stash(("y",), Footprint(0, 200)),),
                working=Footprint(fixed, 1000),
                work=work,
            ),
            segment(1, inputs=("y",)),
        ),
        stream_dtype="bfloat16",
    )
    inputs = (TensorSpec("input_ids", (samples, TOKENS), "int64"),)
    return replace(step, inputs=inputs, num_cut=0, micro_batch_size=samples)


def blocks_in(step: Program, room: int) -> int:
    """Return the blocks of the layer, and check what it holds in them."""
    plan = plan_sram(step, with_room(room))
    assert plan.fits
    assert plan.peak_bytes <= room
    return plan.program.segments[0].blocks


@pytest.mark.parametrize(
    ("room", "blocks"),
    [(4000, 1), (3999, 2), (800 + 2 * 800, 2), (2399, 4), (800 + 800, 4)],
)
def test_blocks_are_of_whole_samples(room: int, blocks: int) -> None:
    """The outputs of all four samples, 200 bytes each, and 800 for each sample of a block."""
    assert blocks_in(layer(PRODUCT, samples=4), room) == blocks


@pytest.mark.parametrize(("room", "blocks"), [(999, 2), (600, 2), (599, 3), (300, 8)])
def test_a_single_sample_is_cut_by_tokens(room: int, blocks: int) -> None:
    """200 bytes are whole, 800 are cut into 8 at most."""
    assert blocks_in(layer(PRODUCT), room) == blocks
    assert largest_with_recompute(layer(PRODUCT), with_room(room)) == 1


def test_keys_and_values_are_whole() -> None:
    """2 heads of 8 keys of 3 features of 2 bytes, twice: 192 bytes beside the 200 and a half."""
    step = layer(PRODUCT, ATTENTION)
    assert blocks_in(step, 200 + 192 + 400) == 2
    assert blocks_in(step, 200 + 192 + 400 - 1) == 3
    two = (PRODUCT, ATTENTION._replace(shape=(4, *ATTENTION.shape[1:])))
    captured_with_two = replace(layer(*two, samples=2), micro_batch_size=1)
    assert blocks_in(captured_with_two, 200 + 192 + 400) == 2


def test_masks_are_of_the_tokens_of_a_block() -> None:
    """As large as they are for all samples; blocks of samples share them."""
    assert blocks_in(layer(PRODUCT, fixed=4000), 200 + 2400) == 2
    assert blocks_in(layer(PRODUCT, fixed=4000, samples=2), 400 + 4000 + 800) == 2


@pytest.mark.parametrize(
    ("work", "room"),
    [
        ((PRODUCT, BATCH_NORM), 999),
        ((PRODUCT, PRODUCT._replace(kind="gather")), 999),
        ((PRODUCT, PRODUCT._replace(op="bmm", streams=False, shape=(2, 8, 8, 3))), 999),
        ((PRODUCT,), 299),
        ((PRODUCT, ATTENTION), 200 + 192),
    ],
    ids=["batch norm", "moves tokens", "scores", "one token", "keys"],
)
def test_what_cannot_be_cut_is_refused(work: tuple[OpWork, ...], room: int) -> None:
    """With the bytes of the whole plan, and with no size that fits."""
    with raises(ApplianceResourceExhausted, "micro-batch-exceeds-sram") as caught:
        plan_sram(layer(*work), with_room(room))
    assert "1000 B" in str(caught.value.what)
    assert "micro_batch_size" not in str(caught.value.remedy)
    assert largest_with_recompute(layer(*work), with_room(room)) == 0


def test_refusal_names_a_size_that_fits_in_blocks() -> None:
    """Four samples give on 800 bytes and need 100 for a token; three fit, and two cut them evenly."""
    with raises(ApplianceResourceExhausted, "micro-batch-exceeds-sram") as caught:
        plan_sram(replace(layer(PRODUCT, samples=4), num_micro_batches=1), with_room(899))
    assert "to 2 or less" in str(caught.value.remedy)
    assert blocks_in(layer(PRODUCT, samples=3), 899) > 3


@given(st.integers(2, 5), st.integers(1, 8), st.integers(0, 9), st.integers(1, 60))
def test_blocks_are_the_fewest(count: int, samples: int, internal: int, room: int) -> None:
    """One block less does not fit at the segments that have some; whatever fits has none."""
    step = replace(layers(count, internal=internal), micro_batch_size=samples)
    plan = SramPlan.of(step, with_room(room * GB // 10))
    found = plan.in_blocks()
    if plan.fits or not found.fits:
        assert found is plan
        return
    for index, each in enumerate(found.program.segments):
        if each.blocks > 1:
            fewer = replace(each, blocks=each.blocks - 1)
            segments = [*step.segments]
            segments[index] = fewer
            tried = found.with_program(replace(step, segments=tuple(segments)))
            assert tried.bytes_at(tried.moments[index]) > room * GB // 10


def test_weights_and_gradients_travel_once_for_each_block() -> None:
    """Their slabs are as large as before."""
    step = program()
    blocked = replace(step, segments=tuple(replace(each, blocks=3) for each in step.segments))
    plain, found = plan_streams(step, 2), plan_streams(blocked, 2)
    for before, after in zip(
        (*plain.weights, *plain.gradients), (*found.weights, *found.gradients), strict=True
    ):
        assert before.moved_bytes == before.num_bytes == after.num_bytes
        assert after.moved_bytes == 3 * after.num_bytes
        assert after.moved_elements == 3 * before.num_elements


def piece(name: str, sample_bytes: int) -> Stash:
    return Stash((name,), Footprint(0, sample_bytes))


def with_teacher(*work: OpWork) -> Program:
    """A step whose head compares what it makes with what a teacher has made before."""
    segments = (
        segment(0, layer="embedding", outputs=("x", "z"), stash=(piece("x", 1), piece("z", 2))),
        segment(
            1,
            layer="teacher",
            inputs=("z",),
            outputs=("scores",),
            stash=(piece("scores", 1000),),
            working=Footprint(0, 1000),
            work=work,
        ),
        segment(2, layer="decoder.0", inputs=("x",), outputs=("y",), stash=(piece("y", 1),)),
        segment(3, layer="head", inputs=("y", "scores"), outputs=("p",), stash=(piece("p", 100),)),
        segment(4, "backward", "head", inputs=("p", "y"), outputs=("dy",), stash=(piece("dy", 1),)),
        segment(5, "backward", "decoder.0", inputs=("dy", "x")),
    )
    return replace(program(segments=segments), micro_batch_size=50)


def test_a_teacher_runs_with_the_head() -> None:
    """Its scores are there for one sample, and what it makes them from to the end of the head."""
    step = with_teacher(PRODUCT)
    assert not any(each.with_head for each in plan_sram(step, with_room(52_000)).program.segments)
    plan = plan_sram(step, with_room(2000))
    assert [each.with_head for each in plan.program.segments] == [False, True, *[False] * 4]
    assert [moment.stash for moment in plan.moments] == [
        Footprint(),
        Footprint(0, 3),
        Footprint(1000, 3),
        Footprint(1000, 4),
        Footprint(100, 4),
        Footprint(0, 2),
    ]
    assert plan.moments[1].working == Footprint(1000)


@pytest.mark.parametrize("op", [ATTENTION, BATCH_NORM, PRODUCT._replace(kind="gather")])
def test_a_teacher_that_needs_whole_samples_does_not(op: OpWork) -> None:
    """Then the scores of all samples have no room."""
    with raises(ApplianceResourceExhausted, "micro-batch-exceeds-sram"):
        plan_sram(with_teacher(PRODUCT, op), with_room(2000))
