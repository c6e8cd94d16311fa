"""Predict inference on wafer regions (WaferLLM)."""

from __future__ import annotations

import re
from collections.abc import Callable

from validation.families.prediction import Family
from validation.rows.decoders import (
    check_one_request,
    one_head_decoder,
    prompt_and_output,
)
from validation.rows.kernels import fabric_of
from validation.rows.row import CannotPredict, Row
from validation.rows.units import in_token_unit
from waferstream.machine.regions.phases import decode_s_per_token, end_to_end_s, prefill_s
from waferstream.machine.regions.region import Region

_PROGRAMS = "WaferLLM"
"""The programs that are modelled. Their paper compares them with others on the same wafer."""


def _predict_prefill(row: Row) -> float:
    """Predict prompt tokens per second, not counting tokens of padding."""
    check_one_request(row)
    length = row.count("seq_len")
    return in_token_unit(row, length / prefill_s(one_head_decoder(row), _region(row), length))


def _predict_decode(row: Row) -> float:
    """Predict tokens per second at the context of the row."""
    check_one_request(row)
    token_s = decode_s_per_token(one_head_decoder(row), _region(row), row.count("seq_len"))
    return in_token_unit(row, 1 / token_s)


def _predict_end_to_end(row: Row) -> float:
    """Predict output tokens per second of the whole request."""
    check_one_request(row)
    prompt, output = prompt_and_output(row)
    prefill, decode = (_region_of_phase(row, phase) for phase in ("prefill", "decode"))
    seconds = end_to_end_s(one_head_decoder(row), prefill, decode, prompt, output)
    return in_token_unit(row, output / seconds)


def _predict_other_programs(row: Row) -> float:
    raise CannotPredict(
        f"the programs of {_PROGRAMS} are modelled, not those of {_programs_of(row)}",
        code="program-unknown",
    )


def _refuse(reason: str, code: str) -> Callable[[Row], float]:
    def predict(_: Row) -> float:
        raise CannotPredict(reason, code=code)

    return predict


def _programs_of(row: Row) -> str:
    """Return the programs of a row, in brackets behind its model; by default the modelled ones."""
    found = re.search(r"\[([^\]]+)\]", row.text("workload"))
    return found[1] if found else _PROGRAMS


def _region(row: Row) -> Region:
    return _square(row, row.text("grid"))


def _region_of_phase(row: Row, phase: str) -> Region:
    """Return the region of one phase; the grid names both: ``prefill 660^2, decode 360^2``."""
    found = re.search(rf"{phase}:?\s+(\d[^,;]*)", row.text("grid"))
    if found is None:
        raise CannotPredict(
            f"the grid does not name the region of {phase}", code="region-not-stated"
        )
    return _square(row, found[1].strip())


def _square(row: Row, grid: str) -> Region:
    found = re.fullmatch(r"(\d+)(?:\^2|\s*[x*\u00d7]\s*(\d+))(?: PEs)?", grid)
    if found is None or found[2] not in (None, found[1]):
        raise CannotPredict(
            f"the grid is not a square of PEs: {grid or 'empty'}", code="region-not-square"
        )
    return Region(int(found[1]), fabric_of(row))


def _inference(row: Row) -> bool:
    return row.kind == "training" and row.text("phase") == "inference"


def _about(words: str) -> Callable[[Row], bool]:
    """Return a test whether a row is of inference and its workload contains ``words``."""
    return lambda row: _inference(row) and words in row.text("workload")


def _on_regions(phase: str) -> Callable[[Row], bool]:
    """Return a test for rows of a phase that name a region, or programs, which need one."""
    return lambda row: _about(phase)(row) and bool(row.text("grid") or "[" in row.text("workload"))


def _by_other_programs(row: Row) -> bool:
    return _inference(row) and _programs_of(row) != _PROGRAMS


FAMILIES: tuple[Family, ...] = (
    Family(
        "wafer-to-wafer transfer",
        _about("inter-wafer"),
        _refuse(
            "a bound, not a measurement; the model of a pipeline over wafers uses it as the hop",
            "bound-not-measurement",
        ),
    ),
    Family(
        "inference relative to GPU",
        _about("relative to"),
        _refuse(
            "the row does not hold the absolute latency of the baseline", "baseline-not-stated"
        ),
    ),
    Family(
        "KV cache capacity",
        _about("max decode length"),
        _refuse(
            "the SRAM that program and buffers take on a PE is not published",
            "capacity-not-published",
        ),
    ),
    Family(
        "host inference",
        _about("end-to-end batch latency"),
        _refuse(
            "time of host and appliance, flat over the batch; there is no calibration row of it",
            "no-calibration-row",
        ),
    ),
    Family("inference by other programs", _by_other_programs, _predict_other_programs),
    Family("end-to-end inference", _on_regions("end-to-end"), _predict_end_to_end),
    Family("prefill", _on_regions("prefill"), _predict_prefill),
    Family("decode", _on_regions("decode"), _predict_decode),
)
