"""How a token is drawn from scores: pure functions, in float64."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from waferstream.core.errors import ApplianceNanError, ConfigError
from waferstream.core.rng import stream_key
from waferstream.core.serving import Request, Sampling, TokenDrawn


def check_tokens(tokens: Iterable[int], vocabulary: int, where: str) -> None:
    """Raise ConfigError for a token that is not in the vocabulary."""
    for token in tokens:
        if not 0 <= token < vocabulary:
            raise ConfigError(
                "a token must be one of the model",
                code="no-such-token",
                where=where,
                value=token,
                rule=f"0 to {vocabulary - 1}",
            )


def draw(
    scores: np.ndarray,
    request: Request,
    tokens: Sequence[int],
    allowed: np.ndarray | None = None,
) -> TokenDrawn:
    """Return the token that follows, which depends on nothing but the arguments.

    Args:
        scores: Those of the vocabulary, (vocabulary,).
        request: What is asked.
        tokens: The prompt, and the answer so far.
        allowed: Whether each token may come, (vocabulary,), as one of them may; None for all.

    Raises:
        ApplianceNanError: A score is not finite.
    """
    if not np.isfinite(scores).all():
        raise ApplianceNanError(
            "the scores of a model must be finite",
            code="scores-not-finite",
            where=request.name,
            remedy="check the weights: a training that diverged leaves such",
        )
    exact = scores.astype(np.float64)
    shifted = exact - exact.max()
    log_sum = np.log(np.exp(shifted).sum())
    steered = _steered(exact, request, tokens)
    if allowed is not None:
        steered[~allowed] = -np.inf
    if len(tokens) < len(request.prompt) + request.sampling.min_tokens:
        _keep_out(request.ends, steered)
    token = _choose(steered, request.sampling, len(tokens))
    best = [(int(each), float(shifted[each] - log_sum)) for each in _best(exact, request.num_best)]
    return TokenDrawn(request.name, token, float(shifted[token] - log_sum), tuple(best))


def _steered(scores: np.ndarray, request: Request, tokens: Sequence[int]) -> np.ndarray:
    """Return scores with bias and penalties."""
    sampling, answer = request.sampling, tokens[len(request.prompt) :]
    steered = scores.copy()
    if sampling.frequency_penalty or sampling.presence_penalty:
        drawn, counts = np.unique(np.asarray(answer, np.int64), return_counts=True)
        steered[drawn] -= counts * sampling.frequency_penalty + sampling.presence_penalty
    for token, added in sampling.bias:
        steered[token] += added
    return steered


def _keep_out(ends: Iterable[int], scores: np.ndarray) -> None:
    """Let no answer end, unless a grammar allows nothing else."""
    kept = scores[list(ends)]
    scores[list(ends)] = -np.inf
    if not np.isfinite(scores).any():
        scores[list(ends)] = kept


def _choose(scores: np.ndarray, sampling: Sampling, position: int) -> int:
    """Return the best token, or one that the number of a seed and a position draws."""
    if sampling.temperature == 0:
        return int(scores.argmax())
    with np.errstate(over="ignore"):  # far below the best score, and so of no probability
        shares = np.exp((scores - scores.max()) / sampling.temperature)
    kept = _kept(shares, sampling)
    sums = shares[kept].cumsum()
    number = stream_key(sampling.seed, "token", position) / 2**63
    below = min(number * sums[-1], np.nextafter(sums[-1], 0))
    return int(kept[np.searchsorted(sums, below, side="right")])


def _kept(shares: np.ndarray, sampling: Sampling) -> np.ndarray:
    """Return the ``top_k`` best tokens, of which those that have ``top_p`` together."""
    if sampling.top_k is None and sampling.top_p == 1:
        return np.arange(len(shares))
    total = shares.sum()
    if sampling.top_k is not None:
        kept = _best(shares, sampling.top_k)
        total = shares[kept].sum()
    else:  # tokens of less, even all of them together, are not among those that have top_p
        least = (1 - sampling.top_p) * total / len(shares) / 2
        kept = _sorted(shares, np.flatnonzero(shares >= least))
    if sampling.top_p == 1:
        return kept
    return kept[: int(np.searchsorted(shares[kept].cumsum(), sampling.top_p * total)) + 1]


def _best(values: np.ndarray, count: int) -> np.ndarray:
    """Return the places of the largest values, the largest first, of equal ones the first."""
    count = min(count, len(values))
    if count == 0:
        return np.empty(0, np.int64)
    least = np.partition(values, -count)[-count]
    return _sorted(values, np.flatnonzero(values >= least))[:count]


def _sorted(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return places by their values, the largest first, of equal ones the first."""
    return places[np.argsort(-values[places], kind="stable")]
