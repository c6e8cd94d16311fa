"""Interpret inference rows: shape of the decoder, tokens of a request.

Wafer and GPU rows name the same public models; rows seldom state a whole shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from validation.rows.row import CannotPredict, Row, letters_of
from waferstream.machine.regions.decoder import Decoder
from waferstream.machine.regions.published import DECODERS


def named_decoder(row: Row) -> Decoder:
    """Return the decoder that the workload names; CannotPredict if its shape is unknown."""
    return DECODERS[decoder_name(row)]


def decoder_name(row: Row) -> str:
    """Return the name of the decoder that the workload names; CannotPredict if there is none."""
    workload = letters_of(row.text("workload"))
    for name in sorted(DECODERS, key=len, reverse=True):
        if letters_of(name) in workload:
            return name
    raise CannotPredict(
        "the shape of the decoder is not known: neither columns nor name give it",
        code="decoder-unknown",
    )


def one_head_decoder(row: Row) -> Decoder:
    """Return the decoder as WaferLLM runs it: one head, keys and values as wide as queries.

    Columns take precedence over the shape of the named model. CannotPredict if neither gives it.
    """
    dim = _given(row, "hidden", lambda known: known.dim)
    return Decoder(
        dim=dim,
        ffn=_given(row, "ffn", lambda known: known.ffn),
        layers=_given(row, "layers", lambda known: known.layers),
        kv_dim=dim,
    )


def prompt_and_output(row: Row) -> tuple[int, int]:
    """Return input and output tokens of a request: ``2048/128`` in ``seq_len``."""
    found = re.fullmatch(r"(\d+)\s*/\s*(\d+)", row.text("seq_len"))
    if found is None:
        raise CannotPredict(
            "seq_len does not give the numbers of input and output tokens",
            code="request-tokens-not-stated",
        )
    return int(found[1]), int(found[2])


def check_one_request(row: Row) -> None:
    """Raise CannotPredict unless a row serves one request at a time with 16-bit weights."""
    if (row.number("global_batch") or 1) != 1:
        raise CannotPredict("only one request at a time is modelled", code="several-requests")
    if row.text("dtype") and "16" not in row.text("dtype"):
        raise CannotPredict("only 16-bit weights are modelled", code="weights-not-16-bit")


def _given(row: Row, column: str, otherwise: Callable[[Decoder], int]) -> int:
    given = row.integer(column)
    return otherwise(named_decoder(row)) if given is None else given
