"""Interpret inference rows: shape of the decoder, tokens of a request.

Wafer and GPU rows name the same public models; rows seldom state a whole shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from validation.rows.row import CannotPredict, Row, letters_of
from waferstream.machine.regions import Decoder

DECODERS = {
    "LLaMA3-8B": Decoder(dim=4096, ffn=14336, layers=32, kv_dim=1024),
    "LLaMA3.1-8B": Decoder(dim=4096, ffn=14336, layers=32, kv_dim=1024),
    "LLaMA2-7B": Decoder(dim=4096, ffn=11008, layers=32, kv_dim=4096),
    "LLaMA2-13B": Decoder(dim=5120, ffn=13824, layers=40, kv_dim=5120),
    "LLaMA2-70B": Decoder(dim=8192, ffn=28672, layers=80, kv_dim=1024),
    "LLaMA3-70B": Decoder(dim=8192, ffn=28672, layers=80, kv_dim=1024),
    "LLaMA3.1-70B": Decoder(dim=8192, ffn=28672, layers=80, kv_dim=1024),
    "LLaMA3.3-70B": Decoder(dim=8192, ffn=28672, layers=80, kv_dim=1024),
    "R1-Distill-LLaMA-70B": Decoder(dim=8192, ffn=28672, layers=80, kv_dim=1024),
    "LLaMA3.1-405B": Decoder(dim=16384, ffn=53248, layers=126, kv_dim=1024),
    "LLaMA3.2-1B": Decoder(dim=2048, ffn=8192, layers=16, kv_dim=512),
    "LLaMA3.2-3B": Decoder(dim=3072, ffn=8192, layers=28, kv_dim=1024),
    "Mistral-7B": Decoder(dim=4096, ffn=14336, layers=32, kv_dim=1024),
    "CodeLLaMA-34B": Decoder(dim=8192, ffn=22016, layers=48, kv_dim=1024),
    "QWen2-72B": Decoder(dim=8192, ffn=29568, layers=80, kv_dim=1024),
}
"""Shapes by model name, from the models' own configuration files."""

_VOCABULARIES = {"llama3": 128_256, "llama2": 32_000, "codellama": 32_016, "qwen2": 152_064}
"""Vocabulary by the first letters of the model, from the configuration files."""


def named_decoder(row: Row) -> Decoder:
    """Return the decoder that the workload names; CannotPredict if its shape is unknown."""
    workload = letters_of(row.text("workload"))
    for name in sorted(DECODERS, key=len, reverse=True):
        if letters_of(name) in workload:
            return DECODERS[name]
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


def vocabulary_of(row: Row) -> int:
    """Return the vocabulary of the named decoder; CannotPredict if it is unknown."""
    workload = letters_of(row.text("workload"))
    for family, vocab in _VOCABULARIES.items():
        if workload.startswith(family):
            return vocab
    raise CannotPredict(
        "the vocabulary of the decoder is not known", code="decoder-vocabulary-unknown"
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
