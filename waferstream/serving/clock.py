"""What the emulated machine takes for a request alone.

It follows from the closed forms of ``waferstream.machine.regions``: the layers of a decoder lie in
regions of as few CS-3 as hold them with the cache of the whole context. Neither this host nor
other requests change it.
"""

from __future__ import annotations

from dataclasses import dataclass

from waferstream.core.units import seconds
from waferstream.machine.regions.decoder import Decoder
from waferstream.machine.regions.service import Service
from waferstream.machine.regions.token_time import TokenTime


@dataclass(frozen=True)
class EmulatedTime:
    """The emulated time of a request: to its first token, and of those that follow."""

    prompt: TokenTime
    completion: TokenTime

    @property
    def prompt_s(self) -> float:
        """Seconds to the first token."""
        return seconds(self.prompt.total_ps)

    @property
    def completion_s(self) -> float:
        """Seconds from the first token to the last."""
        return seconds(self.completion.total_ps)

    @property
    def total_s(self) -> float:
        """Seconds to the last token."""
        return seconds(self.prompt.total_ps + self.completion.total_ps)

    @property
    def attribution(self) -> dict[str, dict[str, int]]:
        """Picoseconds by cause, which add up to the time of each part."""
        return {"prompt": self.prompt.by_cause, "completion": self.completion.by_cause}


class ServiceClock:
    """The emulated time of requests to one model.

    Args:
        shape: The model.
        context: The most tokens of a sequence.

    Raises:
        ApplianceResourceExhausted: The model does not fit the wafers of a service.
    """

    def __init__(self, shape: Decoder, context: int) -> None:
        self.service = Service(shape, context)
        self.num_wafers = self.service.layout.num_wafers
        self.sram_bytes = self.service.layout.sram_bytes
        """SRAM of the regions, for weights, keys and values."""
        self.cache_tokens = self.service.layout.cache_tokens
        """Tokens whose keys and values fit beside the weights."""

    def of(self, prompt: int, completion: int) -> EmulatedTime:
        """Return the time of a prompt and of the tokens of its answer, both at least one."""
        return EmulatedTime(
            prompt=self.service.pipeline.prompt(prompt),
            completion=self.service.tokens(prompt, completion - 1),
        )
