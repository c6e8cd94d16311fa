"""A smaller model that proposes tokens (speculative decoding; Leviathan et al., ICML'23).

It draws by the numbers that the served model will draw by, so that also sampled tokens often agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from appliance.serving.sampling import draw
from appliance.serving.scorer import Scorer
from appliance.serving.sequence import LONGEST_PROPOSAL, Sequence
from waferstream.core.serving import CacheLostError, Part


@dataclass
class _Held:
    tokens: list[int] = field(default_factory=list)  # those that the cache of the draft has
    sure: int = 0  # the first of them, which were tokens of the sequence when they came

    def keep(self, tokens: list[int]) -> None:
        """Forget what is not of a sequence; leave its last token to be computed."""
        most = min(len(self.tokens), len(tokens) - 1)
        same = min(self.sure, most)
        while same < most and self.tokens[same] == tokens[same]:
            same += 1
        del self.tokens[same:]
        self.sure = len(tokens)


class Draft:
    """What proposes tokens.

    Args:
        scorer: The model, of the vocabulary of the served one.
        context: The most tokens of a sequence.
        cache_tokens: The most tokens of all sequences.
        step_tokens: The most tokens of a step.
    """

    def __init__(
        self, scorer: Scorer, context: int, cache_tokens: int, step_tokens: int = 256
    ) -> None:
        self._scorer = scorer
        self._context = context
        self._cache_tokens = cache_tokens
        self._step_tokens = step_tokens
        self._held: dict[str, _Held] = {}

    def propose(self, wanted: Mapping[Sequence, int]) -> dict[str, tuple[int, ...]]:
        """Return tokens that may come next, by the name of their request.

        Args:
            wanted: Sequences that answer, and the most tokens of a proposal; others are forgotten.
        """
        asked = self._that_fit(wanted)
        try:
            for name in self._held.keys() - {each.request.name for each in asked}:
                del self._held[name]
                self._scorer.forget(name)
            return self._draw({each: most for each, most in asked.items() if most > 0})
        except CacheLostError:
            self._held.clear()
            return {}

    def _that_fit(self, wanted: Mapping[Sequence, int]) -> dict[Sequence, int]:
        """Return the sequences that context and cache have room for."""
        left = self._cache_tokens
        found: dict[Sequence, int] = {}
        for each, most in wanted.items():
            needed = len(each.tokens) + LONGEST_PROPOSAL
            if needed <= min(left, self._context):
                found[each] = most
                left -= needed
        return found

    def _draw(self, asked: dict[Sequence, int]) -> dict[str, tuple[int, ...]]:
        """Draw one token of each sequence after the other."""
        drawn = {each: list(each.tokens) for each in asked}
        for each in asked:
            self._held.setdefault(each.request.name, _Held()).keep(each.tokens)
        while asked:
            found = self._extend({each: drawn[each] for each in asked})
            ready = {each: scores for each, scores in found.items() if np.isfinite(scores).all()}
            for each, scores in ready.items():
                drawn[each].append(draw(scores, each.request, drawn[each]).token)
            asked = {each: asked[each] - 1 for each in ready if asked[each] > 1}
        return {each.request.name: tuple(new[len(each.tokens) :]) for each, new in drawn.items()}

    def _extend(self, wanted: Mapping[Sequence, list[int]]) -> dict[Sequence, np.ndarray]:
        """Compute tokens as many as a step has; return the scores of those that are complete."""
        left = self._step_tokens
        parts: list[Part] = []
        ready: list[Sequence] = []
        for each, tokens in wanted.items():
            held = self._held[each.request.name].tokens
            new = tuple(tokens[len(held) : len(held) + left])
            if new:
                is_last = len(held) + len(new) == len(tokens)
                parts.append(Part(each.request.name, len(held), new, int(is_last)))
                held += new
                left -= len(new)
                if is_last:
                    ready.append(each)
        return dict(zip(ready, np.asarray(self._scorer.extend(parts)), strict=True))


def propose(wanted: Mapping[Sequence, int], draft: Draft | None) -> dict[str, tuple[int, ...]]:
    """Return the tokens that may follow those of sequences, by the name of their request.

    Predictions of requests come first, then a draft model or, without one, prompt lookup.

    Args:
        wanted: The sequences, and the most tokens of a proposal.
        draft: A model that proposes, if there is one.
    """
    found = {each.request.name: each.predict(most) for each, most in wanted.items()}
    rest = {each: 0 if found[each.request.name] else most for each, most in wanted.items()}
    if draft is not None:
        return found | draft.propose(rest)
    return found | {each.request.name: each.look_up(most) for each, most in rest.items() if most}
