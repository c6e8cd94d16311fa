"""What an inference row runs, and how long that takes: decoder, regions, tokens, seconds."""

from __future__ import annotations

import re

from benchmarks.fidelity.cells import count, prompt_and_output
from benchmarks.fidelity.decoders import named_decoder, one_head_decoder
from benchmarks.fidelity.replay import CannotReplay
from benchmarks.fidelity.rows import Row
from wsc.timing.hardware import WSE2, WSE3
from wsc.timing.regions import (
    PE_COSTS,
    PeCosts,
    Region,
    ServiceSpec,
    decode_s_per_token,
    end_to_end_s,
    prefill_s,
    service_s_per_token,
)

SERVED_CONTEXT = 1024
"""Tokens that a served token attends to where a row does not say; assumed."""


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
    if row.text("dtype") not in ("16-bit weights", "fp16", "bf16", ""):
        raise CannotReplay("only 16-bit weights are modelled")
    context = row.integer("seq_len") or SERVED_CONTEXT
    return service_s_per_token(named_decoder(row), context, service)


def _region(row: Row) -> Region:
    return _square(row, row.text("grid"))


def _region_of_phase(row: Row, phase: str) -> Region:
    """The region of one phase; the grid names both: ``prefill 660^2, decode 360^2``."""
    found = re.search(rf"{phase}\s+(\d[^\s,]*)", row.text("grid"))
    if found is None:
        raise CannotReplay(f"the grid does not name the region of {phase}")
    return _square(row, found[1])


def _square(row: Row, grid: str) -> Region:
    found = re.fullmatch(r"(\d+)(?:\^2|x(\d+))", grid)
    if found is None or found[2] not in (None, found[1]):
        raise CannotReplay(f"the grid is not a square of PEs: {grid or 'empty'}")
    return Region(int(found[1]), WSE3 if "WSE-3" in row.text("system") else WSE2)
