"""What the emulated machine takes for a request alone.

It follows from the closed forms of ``waferstream.machine.regions``: the layers of a
decoder lie in regions of as few CS-3 as hold them with the cache of the whole context.
"""

from __future__ import annotations

from dataclasses import dataclass

from waferstream.machine.regions import (
    Decoder,
    ServiceSpec,
    decode_s,
    held_bytes,
    prefill_s,
    wafer_plan,
)


@dataclass(frozen=True)
class EmulatedTime:
    """The emulated seconds of a request."""

    prompt_s: float
    completion_s: float


class ServiceClock:
    """The emulated time of requests to one model.

    Args:
        shape: The model.
        context: The most tokens of a sequence.

    Raises:
        ApplianceResourceExhausted: The model does not fit the wafers of a service.
    """

    def __init__(self, shape: Decoder, context: int) -> None:
        self._shape = shape
        self._service = ServiceSpec()
        self.num_wafers, self._region = wafer_plan(shape, context, self._service)
        self.sram_bytes = self.num_wafers * held_bytes(self._region)
        """SRAM of the regions, for weights, keys and values."""

    def of(self, prompt: int, completion: int) -> EmulatedTime:
        """Return the time of a prompt and of the tokens that follow, both at least one."""
        factor, hops = self._service.kernel_factor, self.num_wafers - 1
        hop_s = hops * self._service.wafer_hop_s
        return EmulatedTime(
            prompt_s=factor * prefill_s(self._shape, self._region, prompt) + hop_s,
            completion_s=factor * decode_s(self._shape, self._region, prompt, completion)
            + completion * hop_s,
        )
