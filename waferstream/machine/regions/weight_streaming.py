"""Answers of a batch by weight streaming, against layers that stay: tokens per second of both.

Weights stream to all wafers at once, layer after layer, and meet a token of every sequence of the
batch, whose keys and values stay in SRAM; each wafer has its share of the sequences. A step takes
as long as the stream or the arithmetic, whichever is longer, and the time to start its layers.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from waferstream.core.units import PS_PER_S, seconds, transfer_ps
from waferstream.machine.hardware import WaferSpec
from waferstream.machine.regions.decoder import Decoder
from waferstream.machine.regions.service import Service

_LAYERS_HELD = 2  # weights of a layer, and of the next one that streams in meanwhile
_MOST_BATCH = 10**6


@dataclass(frozen=True)
class WeightStreaming:
    """A model whose weights stream to wafers.

    Attributes:
        model: Its shape.
        context: Tokens of each sequence that stay in SRAM.
        system: Any of the wafers.
        num_wafers: How many.
    """

    model: Decoder
    context: int
    system: WaferSpec
    num_wafers: int

    @property
    def most_sequences(self) -> int:
        """Sequences whose keys and values fit the wafers beside the weights that stream."""
        room = self.system.sram_bytes - _LAYERS_HELD * self.model.layer_bytes
        return self.num_wafers * max(0, room // self.model.cache_bytes(self.context))

    def step_ps(self, batch: int) -> int:
        """Return the time in which every sequence of a batch gets a token."""
        model, system = self.model, self.system
        every = model.weight_bytes + model.head_bytes
        stream_ps = transfer_ps(every, system.io_bandwidth_bytes_per_s)
        share = -(-batch // self.num_wafers)
        head = model.vocabulary * model.dim
        scores = 2 * model.layers * model.queries * self.context
        arithmetic_ps = round(2 * share * (model.active_weights + head + scores) / self._flops_ps)
        overhead_ps = system.segment_overhead_ps
        return max(stream_ps, arithmetic_ps) + model.layers * overhead_ps

    def tokens_per_s(self, batch: int) -> float:
        """Return the tokens per second of a batch; 0 if not one sequence fits.

        What exceeds the SRAM of the wafers waits for another round.
        """
        together = min(batch, self.most_sequences)
        return together / seconds(self.step_ps(together)) if together else 0.0

    @property
    def _flops_ps(self) -> float:
        """Sustained operations of a wafer in a picosecond, as in training."""
        fabric, system = self.system.fabric, self.system
        peak = 2 * fabric.num_pes * fabric.fma_16bit_per_cycle * system.clock_hz
        return peak * system.kernel_efficiency * system.software_speed / PS_PER_S


def resident_tokens_per_s(service: Service, context: int, batch: int) -> float:
    """Return the tokens per second of a batch whose layers stay on their regions.

    A draft helps one user, not a batch: what it guesses wrong takes the place of other sequences.
    """
    room = service.layout.cache_tokens // context
    together = min(batch, room, service.pipeline.full_speed_users(context))
    return together / seconds(service.pipeline.token(context).total_ps)


def crossover(service: Service, context: int) -> int | None:
    """Return the smallest batch that weight streaming on as many wafers answers faster.

    None if it never does.
    """
    layout, system = service.layout, service.spec.system
    streaming = WeightStreaming(layout.decoder, context, system, layout.num_wafers)
    most = min(_MOST_BATCH, max(streaming.most_sequences, 1))

    def is_faster(batch: int) -> bool:
        return streaming.tokens_per_s(batch) > resident_tokens_per_s(service, context, batch)

    found = bisect_left(range(1, most + 1), True, key=is_faster) + 1
    return found if found <= most else None
