"""Replays of inference: decoders on wafer regions, and why other rows cannot be predicted."""

from __future__ import annotations

from collections.abc import Callable

from baselines.wafer_inference import ServiceSpec
from validation.families.replay import CannotReplay, Family, Fit
from validation.fit.inference import fit_decode, fit_prefill, fit_service
from validation.rows.cells import (
    check_one_request,
    count,
    in_token_unit,
    prompt_and_output,
)
from validation.rows.inference_rows import (
    PROGRAMS,
    decode_row_s,
    end_to_end_row_s,
    prefill_row_s,
    programs_of,
    service_row_s,
)
from validation.rows.row import Row


def predict_prefill(row: Row) -> float:
    """Prompt tokens per second; those of the row, without what padding adds."""
    check_one_request(row)
    return in_token_unit(row, count(row, "seq_len") / prefill_row_s(row))


def predict_decode(row: Row) -> float:
    """Tokens per second at the context of the row."""
    check_one_request(row)
    return in_token_unit(row, 1 / decode_row_s(row))


def predict_end_to_end(row: Row) -> float:
    """Output tokens per second of the whole request."""
    check_one_request(row)
    _, output = prompt_and_output(row)
    return in_token_unit(row, output / end_to_end_row_s(row))


def predict_service(row: Row) -> float:
    """Output tokens per second and user of the vendor's service."""
    return in_token_unit(row, 1 / service_row_s(row, ServiceSpec()))


def _predict_other_programs(row: Row) -> float:
    raise CannotReplay(f"the programs of {PROGRAMS} are modelled, not those of {programs_of(row)}")


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
    """Rows of this phase that name a region, or programs, which need one."""
    return lambda row: _about(phase)(row) and bool(row.text("grid") or "[" in row.text("workload"))


def _by_other_programs(row: Row) -> bool:
    return _inference(row) and programs_of(row) != PROGRAMS


def _served(row: Row) -> bool:
    return _inference(row) and "inference service" in row.text("system")


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
    Family("inference by other programs", _by_other_programs, _predict_other_programs),
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
