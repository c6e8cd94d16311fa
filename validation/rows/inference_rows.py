"""What an inference row runs, and how long that takes: decoder, regions, tokens, seconds."""

from __future__ import annotations

import re

from baselines.wafer_inference import (
    PE_COSTS,
    PeCosts,
    Region,
    ServiceSpec,
    decode_s_per_token,
    end_to_end_s,
    prefill_s,
    service_s_per_token,
)
from validation.families.replay import CannotReplay
from validation.rows.cells import check_one_request, count, prompt_and_output
from validation.rows.decoders import named_decoder, one_head_decoder
from validation.rows.kernel_rows import fabric_of
from validation.rows.row import Row

SERVED_CONTEXT = 1024
"""Tokens that a served token attends to where a row does not say; assumed."""


PROGRAMS = "WaferLLM"
"""Whose programs are modelled. Its evaluation compares them with others on the same wafer."""


def programs_of(row: Row) -> str:
    """Whose programs a row ran, in brackets behind its model; those modelled if none are named."""
    found = re.search(r"\[([^\]]+)\]", row.text("workload"))
    return found[1] if found else PROGRAMS


def prefill_row_s(row: Row, costs: PeCosts = PE_COSTS) -> float:
    """Seconds of the prompt."""
    return prefill_s(one_head_decoder(row), _region(row), count(row, "seq_len"), costs)


def decode_row_s(row: Row, costs: PeCosts = PE_COSTS) -> float:
    """Seconds of one token at the context of the row."""
    return decode_s_per_token(one_head_decoder(row), _region(row), count(row, "seq_len"), costs)


def end_to_end_row_s(row: Row) -> float:
    """Seconds of the whole request."""
    prefill, decode = (_region_of_phase(row, phase) for phase in ("prefill", "decode"))
    prompt, output = prompt_and_output(row)
    return end_to_end_s(one_head_decoder(row), prefill, decode, prompt, output)


def service_row_s(row: Row, service: ServiceSpec) -> float:
    """Seconds per token and user of the vendor's service."""
    check_one_request(row)
    if "speculative" in row.text("workload"):
        raise CannotReplay("speculative decoding is not modelled")
    context = row.integer("seq_len") or SERVED_CONTEXT
    return service_s_per_token(named_decoder(row), context, service)


def _region(row: Row) -> Region:
    return _square(row, row.text("grid"))


def _region_of_phase(row: Row, phase: str) -> Region:
    """The region of one phase; the grid names both: ``prefill 660^2, decode 360^2``."""
    found = re.search(rf"{phase}:?\s+(\d[^,;]*)", row.text("grid"))
    if found is None:
        raise CannotReplay(f"the grid does not name the region of {phase}")
    return _square(row, found[1].strip())


def _square(row: Row, grid: str) -> Region:
    found = re.fullmatch(r"(\d+)(?:\^2|\s*[x*\u00d7]\s*(\d+))(?: PEs)?", grid)
    if found is None or found[2] not in (None, found[1]):
        raise CannotReplay(f"the grid is not a square of PEs: {grid or 'empty'}")
    return Region(int(found[1]), fabric_of(row))
