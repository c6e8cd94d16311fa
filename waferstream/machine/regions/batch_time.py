"""Time of a batch of requests that are alike, prompts included, by both ways to answer it.

Layers stay on their regions, through which prompts and tokens of all sequences pass; or weights
stream to as many wafers, as in training, and meet all prompts of a round at once, then a token of
every sequence.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from math import inf

from waferstream.core.units import seconds
from waferstream.machine.regions.service import Service
from waferstream.machine.regions.weight_streaming import WeightStreaming, resident_tokens_per_s


@dataclass(frozen=True)
class BatchTime:
    """Requests of one length.

    Attributes:
        service: Their model on its wafers.
        prompt: Tokens of a prompt.
        answer: Tokens of an answer, of which the pass of the prompt gives the first.
    """

    service: Service
    prompt: int
    answer: int

    @property
    def context(self) -> int:
        """Tokens of a sequence."""
        return self.prompt + self.answer

    def resident_s(self, requests: int) -> float:
        """Return the seconds of a batch whose layers stay."""
        rate = resident_tokens_per_s(self.service, self.context, requests)
        return requests * (self._prompt_s + (self.answer - 1) / rate)

    def streamed_s(self, requests: int) -> float:
        """Return the seconds of a batch to which weights stream; inf if no sequence fits."""
        together = min(requests, self._streaming.most_sequences)
        if not together:
            return inf
        rounds = -(-requests // together)
        prompts_s = rounds * seconds(self._streaming.step_ps(together * self.prompt))
        drawn = requests * (self.answer - 1)
        return prompts_s + drawn / self._streaming.tokens_per_s(requests)

    @cached_property
    def crossover(self) -> int | None:
        """The fewest requests that are faster with weights that stream; None if none are.

        Of more than fit at a time, both ways need more rounds.
        """
        most = self._streaming.most_sequences
        found = 1 + bisect_left(
            range(1, most + 1), True, key=lambda n: self.streamed_s(n) < self.resident_s(n)
        )
        return found if found <= most else None

    @cached_property
    def _streaming(self) -> WeightStreaming:
        layout, system = self.service.layout, self.service.spec.system
        return WeightStreaming(layout.decoder, self.context, system, layout.num_wafers)

    @cached_property
    def _prompt_s(self) -> float:
        """The time of a prompt in the busiest stage, after which the next one can follow."""
        layout, pipeline = self.service.layout, self.service.pipeline
        all_layers = sum(pipeline.chunk(*chunk).total_ps for chunk in pipeline.chunks(self.prompt))
        return seconds(all_layers * layout.busiest_layers // layout.decoder.layers)
