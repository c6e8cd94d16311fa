"""The clock against published training runs that its constants were chosen from (and no others).

Rows: row id, parameters N, layers L, hidden H, sequence S, batch B, step time in seconds; all from
arXiv 2409.00287, one CS-2.
"""

from __future__ import annotations

from math import exp, log
from statistics import mean

import pytest

from appliance.clock import ClusterClock
from wsc.core.program import OpWork, Program, Segment, TensorSpec, plan_streams
from wsc.core.units import seconds
from wsc.timing.attribution import StepTiming
from wsc.timing.hardware import CS2, MachineSpec

GPT = [
    ("T0001", 0.256e9, 14, 1088, 2048, 128, 0.3428),
    ("T0003", 0.256e9, 14, 1088, 2048, 512, 1.3535),
    ("T0009", 2.7e9, 32, 2560, 2048, 128, 2.7462),
    ("T0011", 2.7e9, 32, 2560, 2048, 512, 10.9425),
    ("T0017", 13e9, 40, 5120, 2048, 128, 10.7926),
    ("T0019", 13e9, 40, 5120, 2048, 512, 43.134),
]
BERT = [
    ("T0028", 0.34e9, 24, 1024, 128, 512, 0.1569),
    ("T0034", 0.34e9, 24, 1024, 128, 4096, 0.5705),
]
Row = tuple[str, float, int, int, int, int, float]


def flops_per_sample(row: Row) -> float:
    _, parameters, layers, hidden, sequence, _, _ = row
    return (6 * parameters + 12 * layers * hidden * sequence) * sequence


def test_the_overhead_is_where_the_line_through_the_bert_rows_meets_batch_zero() -> None:
    """Half a layer's share of the intercept is the time that starting one segment takes."""
    (*_, small, small_s), (*_, large, large_s) = BERT
    intercept_s = small_s - small * (large_s - small_s) / (large - small)
    assert seconds(CS2.segment_overhead_ps) == pytest.approx(intercept_s / 24 / 2, rel=1e-3)


def test_the_utilisation_is_the_mean_that_the_gpt_rows_imply() -> None:
    """Geometric mean of flops over time less overhead, in micro-batches of 128 sequences."""
    utilisations = []
    for row in GPT:
        _, _, layers, _, _, batch, step_s = row
        overhead_s = batch / 128 * layers * 2 * seconds(CS2.segment_overhead_ps)
        flops = flops_per_sample(row) * batch
        utilisations.append(flops / (step_s - overhead_s) / CS2.peak_flops_per_s)
    assert exp(mean(map(log, utilisations))) == pytest.approx(CS2.matmul_utilisation, rel=1e-3)


@pytest.mark.parametrize("row", GPT + BERT, ids=lambda row: row[0])
def test_predicted_step_times_meet_the_rows_they_were_fitted_on(row: Row) -> None:
    """Through program, stream and attribution the step time comes out within a fifth."""
    *_, batch, step_s = row
    micro_batch = batch if row in BERT else 128
    timing = _steady_step(row, micro_batch)
    assert seconds(timing.duration_ps) == pytest.approx(step_s, rel=0.2)
    assert timing.attribution.shares()["weights"] < 0.05


def _steady_step(row: Row, micro_batch: int) -> StepTiming:
    _, parameters, layers, _, sequence, batch, _ = row
    flops = int(flops_per_sample(row) * micro_batch / layers / 3)
    order = [("forward", k) for k in range(layers)] + [("backward", k) for k in range(layers)[::-1]]
    segments = tuple(
        Segment(
            index=index,
            phase=phase,  # type: ignore[arg-type]
            layer=str(layer),
            weights=(f"w{layer}",),
            gradients=(f"w{layer}",) if phase == "backward" else (),
            inputs=(),
            outputs=(),
            drops=(),
            results=(),
            work=(OpWork("mm", "matmul", flops * (1 if phase == "forward" else 2), 0),),
            stash_bytes=0,
        )
        for index, (phase, layer) in enumerate(order)
    )
    size = int(parameters / layers)
    program = Program(
        mode="train",
        digest=row[0],
        parameters=tuple(TensorSpec(f"w{k}", (size,), "float32") for k in range(layers)),
        stream_dtype="float16",
        inputs=(TensorSpec("tokens", (micro_batch, sequence), "int32"),),
        num_results=0,
        segments=segments,
        micro_batch_size=micro_batch,
        num_micro_batches=batch // micro_batch,
    )
    clock = ClusterClock(MachineSpec(), 1, 1)
    clock.install(program, plan_streams(program, 1), state_bytes_per_element=8)
    return [clock.step("train", step) for step in (1, 2, 3)][-1]
