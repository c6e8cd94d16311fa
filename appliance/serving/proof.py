"""The proof that a row has the same bits in any company, on this host and for this model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import cycle

import torch

from appliance.serving.pipeline import LOSSES, Pipeline
from waferstream.core.errors import ClusterJobInitError, ConfigError
from waferstream.core.serving import CacheLostError, Part

Scores = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Tokens and positions, int64 (B, T), to scores of the next tokens (B, T, vocabulary)."""

PROBE_TOKENS = 100
"""Tokens of the sequence that is computed in several ways before the first request: more than one
block of the cache."""

_CHUNKS = (1, 2, 1, 3, 4, 1, 8, 1, 17, 1)
"""Tokens of the steps in which it is computed again."""

TOLERANCES = {torch.float32: 1e-3, torch.bfloat16: 5e-2}
"""How far scores may be from those of the model alone, as a share of the largest: sums have another
order, and the attention of a decoder that is computed wrongly is off by much more."""

FAR_ROWS = {torch.float32: 0.0, torch.bfloat16: 0.1}
"""The share of rows that may be farther: in bf16 a row may take a route to other experts."""


@torch.no_grad()
def prove(
    pipeline: Pipeline,
    scores: Scores,
    vocabulary: int,
    context: int,
    probe_tokens: int = PROBE_TOKENS,
) -> None:
    """Compute a sequence at once, and in steps and company; compare, also with the model.

    Args:
        pipeline: What computes it.
        scores: The model in plain PyTorch.
        vocabulary: Its tokens.
        context: The most tokens of a sequence.
        probe_tokens: Those of the sequence.

    Raises:
        ConfigError: They differ.
        ClusterJobInitError: Wafers are lost again and again.
    """
    length = min(context, probe_tokens)
    tokens = tuple((7 * i + 3) % vocabulary for i in range(length))
    plain = scores(torch.tensor([tokens]), torch.arange(length)[None])[0]
    for _ in range(LOSSES):
        with suppress(CacheLostError):  # a wafer was replaced
            return _compare(pipeline, tokens, plain)
    raise ClusterJobInitError(
        "wafers must stay while a service starts",
        code="wafers-lost-at-start",
        value=f"{LOSSES} were lost",
        remedy="look at the memory of the hosts",
    )


def _compare(pipeline: Pipeline, tokens: tuple[int, ...], plain: torch.Tensor) -> None:
    """Raise ConfigError unless a sequence has the scores of the model, however it is computed."""
    whole = pipeline.rows([Part("whole", 0, tokens)])
    if not are_close(whole, plain):
        raise ConfigError(
            "the model must compute the same row by row",
            code="rows-differ-from-model",
            value=f"scores differ by {(whole - plain).abs().max():.3g}",
            rule=f"at most {TOLERANCES[plain.dtype]:g} of the largest score",
            remedy="serve a decoder whose layers are row-wise but for causal attention",
        )
    _check_steps(pipeline, tokens, whole)
    for name in ("whole", "company", "alone"):
        pipeline.forget(name)


def are_close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether rows of scores are those of the model, as far as their dtype tells."""
    most = TOLERANCES[expected.dtype] * expected.abs().max()
    are_far = ~((found - expected).abs().amax(-1) <= most)  # as those of NaN are
    return bool(are_far.float().mean() <= FAR_ROWS[expected.dtype])


def _check_steps(pipeline: Pipeline, tokens: tuple[int, ...], whole: torch.Tensor) -> None:
    """Raise ConfigError unless steps of a sequence in company give the rows that it has whole."""
    half = len(tokens) // 2
    pipeline.rows([Part("company", 0, tokens[half:])])
    start = 0
    for length in cycle(_CHUNKS):
        if start == len(tokens):
            break
        chunk = Part("alone", start, tokens[start : start + length])
        company = Part("company", len(tokens) - half, tokens[:1])
        rows = pipeline.rows([company, chunk])[1:] if length > 1 else pipeline.rows([chunk])
        end = start + len(chunk.tokens)
        if not torch.equal(rows, whole[start:end]):
            raise ConfigError(
                "a row must have the same bits in any company",
                code="rows-not-steady",
                value=f"other scores of tokens {start} to {end - 1} of {len(tokens)}",
                rule="the packed product and attention by row, which torch has on x86",
                remedy="serve on another host, and report its processor",
            )
        start = end
