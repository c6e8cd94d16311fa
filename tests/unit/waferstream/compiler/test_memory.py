"""Bytes of activations of a captured step: linear in the samples, without streams, views once."""

import pytest

from tests.support.roles.local_machine import BF16, compile_model
from tests.support.runs.tiny_training import GPT, LOADER
from waferstream.core.program.program import Program
from waferstream.core.program.segment import Footprint
from waferstream.numerics.precision import StreamPrecision
from waferstream.workload.data import build_source
from waferstream.workload.models import build_model

SUMS_IN_FP32 = StreamPrecision("bfloat16", "float32")


def captured(samples: int, precision: StreamPrecision = BF16, **changes: object) -> Program:
    batch = build_source(LOADER | {"batch_size": samples}, "test").batch(0)
    return compile_model(build_model(GPT | changes, 0), batch, 1, precision=precision).program


@pytest.fixture(scope="module")
def gpt() -> Program:
    return captured(2)


def footprints(program: Program) -> list[tuple[Footprint, list[Footprint]]]:
    return [(s.working, [piece.footprint for piece in s.stash]) for s in program.segments]


def test_footprints_do_not_depend_on_the_captured_size(gpt: Program) -> None:
    """One capture gives the memory of every micro-batch size.

    Except for gradients that are summed over the batch in two steps, as that of positions.
    """
    assert footprints(captured(4))[:-1] == footprints(gpt)[:-1]


def test_stash_of_a_decoder_layer_by_hand(gpt: Program) -> None:
    """16 hidden-sized tensors with the filter twice the hidden size less 4.

    Two norms (2, and statistics), queries, keys, values, attention (4, and its statistics), the
    attention's residual sum, the filter before and after its activation (2 x 2), the output.
    """
    layer = next(s for s in gpt.segments if s.layer.endswith("1") and s.phase == "forward")
    tokens, hidden = 8, GPT["hidden_size"] * 2
    small = [
        p.footprint.sample_bytes for p in layer.stash if p.footprint.sample_bytes < tokens * 32
    ]
    large = sum(p.footprint.sample_bytes for p in layer.stash) - sum(small)
    assert large == tokens * hidden * 12
    assert sum(small) <= tokens * 4 * (2 * 2 + GPT["num_heads"])


def test_sums_in_fp32_do_not_widen_activations(gpt: Program) -> None:
    """precision_opt_level 0 computes activations in fp32, and a system keeps their half type."""
    layers = (
        next(s for s in p.segments if s.layer.endswith("1") and s.phase == "forward")
        for p in (captured(2, SUMS_IN_FP32), gpt)
    )
    of_sums, of_halves = ([p.footprint.sample_bytes for p in s.stash] for s in layers)
    wide = 8 * GPT["hidden_size"] * 2
    assert [b for b in of_sums if b >= wide] == [b for b in of_halves if b >= wide]


def test_gradients_take_no_working_memory(gpt: Program) -> None:
    """They stream out, so a wide weight needs no more memory in the backward pass."""
    wide = captured(2, vocab_size=640)
    narrow_head, wide_head = (
        next(s for s in p.segments if s.gradients and s.phase == "backward") for p in (gpt, wide)
    )
    logits = 8 * (640 - 64) * (2 + 4)
    grown = wide_head.working.sample_bytes - narrow_head.working.sample_bytes
    assert 0 < grown <= 2 * logits
    assert wide_head.working.fixed_bytes == narrow_head.working.fixed_bytes


def test_working_set_includes_the_outputs(gpt: Program) -> None:
    """A segment's outputs live to its end, so they are part of its working set."""
    for segment in gpt.segments:
        stashed = sum(piece.footprint.sample_bytes for piece in segment.stash)
        assert segment.working.sample_bytes >= stashed


def test_gradient_of_a_shared_weight_has_a_fixed_size(gpt: Program) -> None:
    """The head's part of the embedding's gradient is stashed until the embedding's backward pass."""
    waiting = {
        piece.footprint.fixed_bytes
        for segment in gpt.segments
        if segment.phase == "backward"
        for piece in segment.stash
    }
    assert GPT["vocab_size"] * GPT["hidden_size"] * 2 in waiting


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_attention_keeps_no_scores_on_the_wafer(rate: float) -> None:
    """Fused, it has none; in single ops, with dropout, they are made a block at a time."""
    short, long = (captured(2, num_heads=n, attention_dropout_rate=rate) for n in (2, 4))
    for phase in ("forward", "backward"):
        few, many = (
            next(s for s in p.segments if s.phase == phase and s.layer.endswith("1"))
            for p in (short, long)
        )
        assert abs(many.working.sample_bytes - few.working.sample_bytes) <= 8 * 4 * 2
        assert (many.blocked.sample_bytes > few.blocked.sample_bytes) is (rate > 0)


def test_what_a_cheap_op_makes_of_kept_values_is_remade(gpt: Program) -> None:
    """The GELU of the first layer and its norms, but not the residual or any product."""
    layer = next(s for s in gpt.segments if s.phase == "forward" and s.layer.endswith("0"))
    ops = [work.op for work in layer.work if work.kind != "view"]
    remade = [piece for piece in layer.stash if piece.held == "remade"]
    assert "gelu" in ops
    assert 0 < len(remade) < len(layer.stash)
