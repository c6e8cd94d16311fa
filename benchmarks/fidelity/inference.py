"""Replays of inference: decoders on wafer regions, and why other rows cannot be predicted."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.fidelity.cells import count, prompt_and_output
from benchmarks.fidelity.fit_inference import fit_decode, fit_prefill, fit_service
from benchmarks.fidelity.inference_rows import (
    decode_row_s,
    end_to_end_row_s,
    prefill_row_s,
    service_row_s,
)
from benchmarks.fidelity.replay import CannotReplay, Family, Fit
from benchmarks.fidelity.rows import Row
from wsc.timing.regions import ServiceSpec

TOKENS_PER_S = frozenset(
    {"tokens/s", "tokens/s per request", "tokens/s/user", "output tokens/s", "output tokens/s/user"}
)


def predict_prefill(row: Row) -> float:
    """Prompt tokens per second; those of the row, without what padding adds."""
    return _rate(row, count(row, "seq_len") / prefill_row_s(row))


def predict_decode(row: Row) -> float:
    """Tokens per second at the context of the row."""
    return _rate(row, 1 / decode_row_s(row))


def predict_end_to_end(row: Row) -> float:
    """Output tokens per second of the whole request."""
    _, output = prompt_and_output(row)
    return _rate(row, output / end_to_end_row_s(row))


def predict_service(row: Row) -> float:
    """Output tokens per second and user of the vendor's service."""
    return _rate(row, 1 / service_row_s(row, ServiceSpec()))


def _rate(row: Row, tokens_per_s: float) -> float:
    if row.unit not in TOKENS_PER_S:
        raise CannotReplay(f"tokens per second are predicted, not {row.unit}")
    return tokens_per_s


def _refuse(reason: str) -> Callable[[Row], float]:
    def predict(_: Row) -> float:
        raise CannotReplay(reason)

    return predict


def _inference(row: Row) -> bool:
    return row.kind == "training" and row.text("phase") == "inference"


def _about(words: str) -> Callable[[Row], bool]:
    """Whether a row is of inference and its workload holds ``words``."""
    return lambda row: _inference(row) and words in row.text("workload")


def _on_regions(phase: str) -> Callable[[Row], bool]:
    return lambda row: _about(phase)(row) and row.text("grid") != ""


def _served(row: Row) -> bool:
    if not _inference(row):
        return False
    return "inference service" in row.text("system") and row.unit in TOKENS_PER_S


FAMILIES = (
    Family(
        "wafer-to-wafer transfer",
        _about("inter-wafer"),
        _refuse("a bound, not a measurement; the pipeline over wafers takes it as its hop"),
    ),
    Family(
        "inference relative to GPU",
        _about("relative to"),
        _refuse("the row does not hold the absolute latency of the baseline"),
    ),
    Family(
        "KV cache capacity",
        _about("max decode length"),
        _refuse("what program and buffers take of the SRAM of a PE is not published"),
    ),
    Family(
        "host inference",
        _about("end-to-end batch latency"),
        _refuse("time of host and appliance, flat over the batch; no calibration row of it"),
    ),
    Family("inference service", _served, predict_service),
    Family("end-to-end inference", _on_regions("end-to-end"), predict_end_to_end),
    Family("prefill", _on_regions("prefill"), predict_prefill),
    Family("decode", _on_regions("decode"), predict_decode),
)

FITS = (
    Fit("prefill", fit_prefill),
    Fit("decode", fit_decode),
    Fit("inference service", fit_service),
)
