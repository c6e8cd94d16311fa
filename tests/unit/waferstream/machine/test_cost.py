"""Costs of segments: closed forms, efficiencies, overhead."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.support.programs.small_programs import program, segment
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.program.program import Program
from waferstream.core.program.segment import OpWork
from waferstream.machine.cost import (
    MOST_REPLICAS_PER_ROW,
    SegmentCost,
    best_grid,
    segment_costs,
    work_by_token,
)
from waferstream.machine.hardware import CS2, CS3, WSE2, override
from waferstream.machine.kernels import Grid
from waferstream.machine.kernels.op_costs import op_cycles

PRODUCT = OpWork("mm", "matmul", 2 * 10**12, (1, 75_000, 1024, 4096), streams=True)
SCORES = OpWork("attention", "attention", 10**9, (64, 2048, 2048, 64))
NORM = OpWork("native_layer_norm", "norm", 10**6, (16, 128, 1024))
VIEW = OpWork("view", "view", 0, (4,))


def step(*work: OpWork) -> Program:
    return program("bfloat16", (segment(0, work=work),))


def cost(*work: OpWork, **changes: Any) -> SegmentCost:
    """The only segment of a step, on a CS-2 at full efficiency with some numbers changed."""
    even = {"kernel_efficiency": 1.0, "attention_efficiency": 1.0, "segment_overhead_ps": 100}
    return segment_costs(step(*work), CS2.model_copy(update=even | changes))[0]


@pytest.mark.parametrize("op", [PRODUCT, SCORES, NORM])
def test_op_at_full_efficiency_takes_its_closed_form(op: OpWork) -> None:
    """At the clock of the system; descriptors and the like count as overhead."""
    grid = best_grid(Counter([op]), CS2, "bfloat16")
    cycles = op_cycles(grid, op, "bfloat16")
    found = cost(op)
    assert found.total_ps - 100 == pytest.approx(cycles.total_cycles / 1.1e9 * 1e12, abs=2)
    assert found.overhead_ps - 100 == pytest.approx(cycles.setup / 1.1e9 * 1e12, abs=2)


def test_each_efficiency_stretches_its_own_family() -> None:
    """Half the efficiency of attention doubles attention and nothing else."""
    assert cost(SCORES, attention_efficiency=0.5).compute_ps == pytest.approx(
        2 * cost(SCORES).compute_ps, abs=2
    )
    assert cost(PRODUCT, attention_efficiency=0.5) == cost(PRODUCT)
    assert cost(PRODUCT, kernel_efficiency=0.5).compute_ps == pytest.approx(
        2 * cost(PRODUCT).compute_ps, abs=2
    )


@pytest.mark.parametrize(
    "op",
    [
        OpWork("bmm", "matmul", 10**9, (64, 128, 64, 128)),
        OpWork("_softmax", "softmax", 10**6, (4, 16, 128, 128), makes_scores=True),
        OpWork("bernoulli", "random", 10**6, (4, 16, 128, 128), makes_scores=True),
    ],
)
def test_attention_in_single_ops_has_the_efficiency_of_attention(op: OpWork) -> None:
    """Products of activations, and what makes scores between them."""
    halved = cost(op, attention_efficiency=0.5)
    assert halved.compute_ps == pytest.approx(2 * cost(op).compute_ps, abs=2)
    assert cost(op, kernel_efficiency=0.5) == cost(op)


def test_condition_of_a_layer_of_tokens_costs_what_tokens_do() -> None:
    """A product of a row per sample, and its gradient; alone, it costs what its rows do."""
    tokens = OpWork("addmm", "matmul", 10**9, (1, 4096, 64, 64), streams=True)
    condition = tokens._replace(shape=(1, 16, 64, 64))
    gradient = OpWork("mm", "matmul", 10**9, (1, 64, 16, 64))
    batch = replace(step(tokens), micro_batch_size=16)
    assert work_by_token((tokens, condition, gradient, NORM), batch) == (
        tokens,
        tokens,
        gradient._replace(shape=(1, 64, 4096, 64)),
        NORM,
    )
    assert work_by_token((condition, gradient), batch) == (condition, gradient)


def test_faster_software_shortens_kernels_but_not_the_start_of_a_segment() -> None:
    """A segment waits for other machines, too."""
    slow, fast = (
        cost(PRODUCT, NORM, software_speed=speed, segment_overhead_ps=1000) for speed in (1.0, 2.0)
    )
    assert fast.compute_ps == pytest.approx(slow.compute_ps / 2, abs=2)
    assert fast.overhead_ps - 1000 == pytest.approx((slow.overhead_ps - 1000) / 2, abs=2)


def test_views_are_free_and_a_segment_of_views_takes_its_overhead() -> None:
    """Nothing moves on the wafer for a view."""
    assert cost(VIEW) == (0, 100)
    assert cost(VIEW, PRODUCT) == cost(PRODUCT)


def test_layout_is_the_best_with_repeated_hidden_rows() -> None:
    """No other number of replicas_per_row takes fewer cycles."""
    counts = Counter({PRODUCT: 3, SCORES: 1, NORM: 2})
    even = CS2.model_copy(update={"kernel_efficiency": 1.0, "attention_efficiency": 1.0})

    def total(grid: Grid) -> float:
        return sum(n * op_cycles(grid, op, "bfloat16").total_cycles for op, n in counts.items())

    best = total(best_grid(counts, even, "bfloat16"))
    assert best == min(
        total(Grid(CS2.fabric, 750 // replicas_per_row)) for replicas_per_row in range(1, 11)
    )


@pytest.mark.parametrize(
    ("tokens", "hidden", "replicas_per_row"), [(10**6, 75, MOST_REPLICAS_PER_ROW), (994, 7500, 1)]
)
def test_a_narrow_hidden_dimension_lies_often_in_a_row(
    tokens: int, hidden: int, replicas_per_row: int
) -> None:
    """75 features of many tokens as often as may be; 7,500 of a token for each row once."""
    shape = (1, tokens, hidden, hidden)
    product = OpWork("mm", "matmul", 2 * tokens * hidden**2, shape, streams=True)
    assert best_grid(Counter([product]), CS2, "bfloat16").replicas_per_row == replicas_per_row


@pytest.mark.parametrize("samples", [1, 4])
def test_segment_in_blocks_costs_what_its_blocks_do(samples: int) -> None:
    """Of 4 samples: one each. Of a single one: a quarter of its tokens, with all keys."""
    heads, queries = 3 * samples, 64
    part = (heads, queries // 4) if samples == 1 else (heads // 4, queries)
    whole, block = (
        (
            OpWork("mm", "matmul", 1, (1, tokens, 32, 48), streams=True),
            OpWork("mm", "matmul", 1, (1, 32, tokens, 48)),
            OpWork("flash", "attention", 1, (*rows, 64, 16)),
            OpWork("gelu", "elementwise", 1, (tokens // 4, 4, 48)),
            OpWork("sum", "reduction", tokens, (tokens, 48)),
        )
        for tokens, rows in ((4096, (heads, queries)), (1024, part))
    )
    blocked = segment(0, work=whole, blocks=4)
    step = replace(program(segments=(blocked,)), micro_batch_size=samples)
    (found,) = segment_costs(step, CS2)
    (one,) = segment_costs(program(segments=(segment(0, work=block),)), CS2)
    assert found == tuple(4 * each for each in one)


def test_equal_segments_cost_the_same_wherever_they_stand() -> None:
    """One cost for each segment, in order."""
    segments = tuple(segment(i, work=(PRODUCT,) if i % 2 else (NORM,)) for i in range(4))
    costs = segment_costs(program("bfloat16", segments), CS2)
    assert costs[0] == costs[2] != costs[1] == costs[3]


def test_a_cs3_computes_faster_than_a_cs2() -> None:
    """The published ratio between the systems on one model is 1.7 to 2.3."""
    work = step(PRODUCT)
    assert segment_costs(work, CS2)[0].compute_ps > segment_costs(work, CS3)[0].compute_ps


def test_a_smaller_wafer_is_slower() -> None:
    """A quarter of the PEs takes at least three times as long; tokens fill fewer PEs better."""
    small = override(CS2, fabric=override(WSE2, columns=375, rows=497))
    times = [segment_costs(step(PRODUCT), wafer)[0].compute_ps for wafer in (small, CS2)]
    assert 3 < times[0] / times[1] < 4.5


def test_an_unknown_kind_is_refused_by_name() -> None:
    """The error names the op, its kind and the kinds there are."""
    with pytest.raises(ApplianceCompilationError, match=r"fft(.|\n)*spectral(.|\n)*matmul"):
        segment_costs(step(OpWork("fft", "spectral", 1)), CS2)
