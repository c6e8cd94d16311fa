"""Published shapes of the decoders that inference rows name; rows seldom give all of it."""

from __future__ import annotations

from collections.abc import Callable

from baselines.wafer_inference import Decoder
from validation.families.replay import CannotReplay
from validation.rows.row import Row
from validation.rows.row_words import letters_of

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
"""From the models' own configuration files."""


def named_decoder(row: Row) -> Decoder:
    """The decoder that the workload names; CannotReplay if no shape of it is known."""
    workload = letters_of(row.text("workload"))
    for name in sorted(DECODERS, key=len, reverse=True):
        if letters_of(name) in workload:
            return DECODERS[name]
    raise CannotReplay("the shape of the decoder is not known: neither columns nor name give it")


def one_head_decoder(row: Row) -> Decoder:
    """The decoder as WaferLLM runs it: all heads as one, keys and values as wide as queries.

    A shape in the columns comes before that of the name. CannotReplay if neither gives it.
    """
    dim = _given(row, "hidden", lambda known: known.dim)
    return Decoder(
        dim=dim,
        ffn=_given(row, "ffn", lambda known: known.ffn),
        layers=_given(row, "layers", lambda known: known.layers),
        kv_dim=dim,
    )


def _given(row: Row, column: str, otherwise: Callable[[Decoder], int]) -> int:
    given = row.integer(column)
    return otherwise(named_decoder(row)) if given is None else given
