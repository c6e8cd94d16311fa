"""How a token is drawn from scores."""

from __future__ import annotations

import numpy as np

from waferstream.core.rng import stream_key
from waferstream.core.serving import Sampling


def draw(scores: np.ndarray, sampling: Sampling, position: int) -> tuple[int, float]:
    """Return the token that follows, and the logarithm of its probability.

    Args:
        scores: Those of the vocabulary, (vocabulary,).
        sampling: How it is drawn.
        position: Its position in the sequence, which with the seed states the random number.
    """
    exact = scores.astype(np.float64)
    logprobs = _log_softmax(exact)
    if sampling.temperature == 0:
        token = int(exact.argmax())
    else:
        with np.errstate(over="ignore"):  # far below the best score, and so of no probability
            divided = (exact - exact.max()) / sampling.temperature
        token = _drawn(divided, sampling, position)
    return token, float(logprobs[token])


def _drawn(scores: np.ndarray, sampling: Sampling, position: int) -> int:
    """Return a token of the ``top_k`` best ones, and of those that have ``top_p`` together."""
    best = np.argsort(-scores, kind="stable")[: sampling.top_k]
    shares = np.exp(_log_softmax(scores[best]))
    sums = shares.cumsum()
    kept = int(np.searchsorted(sums, sampling.top_p * sums[-1])) + 1
    sums = sums[: min(kept, len(sums))]
    number = stream_key(sampling.seed, "token", position) / 2**63
    return int(best[min(np.searchsorted(sums, number * sums[-1], side="right"), len(sums) - 1)])


def _log_softmax(scores: np.ndarray) -> np.ndarray:
    shifted = scores - scores.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))
