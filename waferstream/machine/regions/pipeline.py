"""Time of tokens that pass the stages of a layout one after the other.

Between stages a token's activations go to the next region, or over one hop to the next wafer; the
end feeds the begin. Tokens of a prompt, and those that a draft has guessed, follow one another, so
that each waits for the one before it at the busiest stage: with stages of equal work that is exact
(a flow shop whose jobs take equally long on all machines).
"""

from __future__ import annotations

from functools import cached_property, lru_cache

from waferstream.core.arguments import check_least
from waferstream.core.units import PS_PER_S
from waferstream.machine.regions.layout import Layout
from waferstream.machine.regions.mesh import Cycles, link_cycles
from waferstream.machine.regions.phases import (
    decode_cycles_per_layer,
    head_cycles,
    prefill_cycles_per_layer,
)
from waferstream.machine.regions.region import PE_COSTS, PeCosts, Region
from waferstream.machine.regions.token_time import TokenTime

MOST_CHUNKS = 64
"""The most chunks of a prompt that are tried, beside token by token."""

_CACHED = 4096


class Pipeline:
    """The clock of a layout.

    Args:
        layout: Where the stages lie.
        kernel_factor: Time of the service's kernels over that of WaferLLM's.
        wafer_hop_ps: From one wafer to the next.
        costs: Instruction costs of a PE.
    """

    def __init__(
        self,
        layout: Layout,
        kernel_factor: float,
        wafer_hop_ps: int,
        costs: PeCosts = PE_COSTS,
    ) -> None:
        self.layout = layout
        self._factor = kernel_factor
        self._wafer_hop_ps = wafer_hop_ps
        self._costs = costs
        self.layer = lru_cache(_CACHED)(self._layer)
        self.prompt = lru_cache(_CACHED)(self._prompt)

    def token(self, context: int) -> TokenTime:
        """Return the time of one token that attends to ``context`` tokens, itself among them."""
        check_least("a request", context=context)
        tile = self.layout.region.tile(context)
        return self.layer(1, tile).scaled(self.layout.decoder.layers) + self._around

    def tokens(self, prompt: int, count: int) -> TokenTime:
        """Return the time of ``count`` tokens in turn, of which the first follows ``prompt``."""
        check_least("a request", prompt=prompt)
        side = self.layout.region.side
        tiles = _tiles(self.layout.region, prompt + 1, prompt + count)
        return sum(
            (self.token(tile * side).scaled(number) for tile, number in tiles.items()), TokenTime()
        )

    def interval_ps(self, context: int) -> int:
        """Return the time of a token in the busiest stage: the next one can follow then."""
        of_layers = self.layer(1, self.layout.region.tile(context)).total_ps
        return max(self.layout.busiest_layers * of_layers, self._head.total_ps)

    def full_speed_users(self, context: int) -> int:
        """Return how many tokens are under way at a time: of more users, some wait."""
        return self.token(context).total_ps // self.interval_ps(context)

    def chunk(self, tokens: int, before: int) -> TokenTime:
        """Return the time of a chunk of a prompt, which follows ``before``, through all layers."""
        return self._chunk_layer(tokens, before).scaled(self.layout.decoder.layers)

    def chunks(self, tokens: int) -> list[tuple[int, int]]:
        """Return size and begin of the chunks in which a prompt passes fastest."""
        return _cut(tokens, self._fastest(tokens)[0])

    def _prompt(self, tokens: int) -> TokenTime:
        """Return the time from a prompt to the scores of its last token, through all regions."""
        check_least("a request", tokens=tokens)
        return self._fastest(tokens)[1] + self._around

    def _fastest(self, tokens: int) -> tuple[int, TokenTime]:
        """Return the size of the chunks in which a prompt passes fastest, and the time it takes."""
        best = 1, self._pass(tokens, 1)
        for size in _sizes(tokens):
            alone = self.chunk(min(size, tokens), 0)  # no pass in such chunks is faster
            if alone.total_ps < best[1].total_ps:
                tried = size, self._pass(tokens, size)
                best = min(best, tried, key=lambda each: each[1].total_ps)
        return best

    def _pass(self, tokens: int, size: int) -> TokenTime:
        """Return the time of a prompt through the layers in chunks of a size."""
        layout = self.layout
        if size == 1:
            last = 1, tokens - 1
            tiles = _tiles(layout.region, 1, tokens - 1)
            one_layer = sum(self.layer(1, tile).total_ps * n for tile, n in tiles.items())
        else:
            *earlier, last = _cut(tokens, size)
            one_layer = sum(self._chunk_layer(*each).total_ps for each in earlier)
        waiting = TokenTime(waiting_ps=layout.busiest_layers * one_layer)
        return self.chunk(*last) + waiting

    def _chunk_layer(self, tokens: int, before: int) -> TokenTime:
        """Return the time of a chunk in one layer."""
        region = self.layout.region
        if tokens == 1:
            return self.layer(1, region.tile(before + 1))
        return self.layer(tokens, before // region.side * region.side)

    def _layer(self, tokens: int, state: int) -> TokenTime:
        """Return the time of one layer, with the way to its experts.

        Args:
            tokens: One that is decoded, or several of a chunk.
            state: Tile of the context of one; tokens before a chunk.
        """
        layout, costs = self.layout, self._costs
        decoder, region = layout.decoder, layout.region
        if tokens == 1:
            cycles = decode_cycles_per_layer(decoder, region, state * region.side, costs)
        else:
            cycles = prefill_cycles_per_layer(decoder, region, tokens, state, costs)
        away = layout.regions_per_layer - 1
        to_experts = 2 * away * self._next_region(tokens) if away else 0.0
        return self._time(Cycles(cycles.compute, cycles.fabric + to_experts))

    def _next_region(self, tokens: int) -> float:
        """Return the cycles of activations to the same place of the region beside."""
        region = self.layout.region
        elements = region.tile(tokens) * region.tile(self.layout.decoder.dim)
        return region.side * region.fabric.hop_cycles + link_cycles(elements, region.fabric)

    @cached_property
    def _head(self) -> TokenTime:
        """The time of the scores, of which each region of the head has a share."""
        layout = self.layout
        if not layout.head_regions:
            return TokenTime()
        return self._time(
            head_cycles(layout.decoder, layout.region, layout.head_regions, self._costs)
        )

    @cached_property
    def _around(self) -> TokenTime:
        """The time of a token outside the layers: head, moves, hops and the way back."""
        layout = self.layout
        hops = layout.num_wafers - 1
        moves = self._time(
            Cycles(0.0, (len(layout.stages) - 1 - hops) * self._next_region(1)), by=1.0
        )
        way_back = Cycles(0.0, layout.return_hops * layout.region.fabric.hop_cycles)
        cycle_ps = self._wafer_hop_ps if hops else self._time(way_back, by=1.0).fabric_ps
        hopped = TokenTime(hop_ps=hops * self._wafer_hop_ps, cycle_ps=cycle_ps)
        return self._head + moves + hopped

    def _time(self, cycles: Cycles, by: float | None = None) -> TokenTime:
        """Return cycles as time, in which kernels take the factor of the service."""
        scale = (self._factor if by is None else by) * PS_PER_S / self.layout.region.clock_hz
        return TokenTime(round(cycles.compute * scale), round(cycles.fabric * scale))


def _tiles(region: Region, first: int, last: int) -> dict[int, int]:
    """Return how many of the contexts from ``first`` to ``last`` have a tile, by tile."""
    side = region.side
    return {
        tile: min(last, tile * side) - max(first, (tile - 1) * side + 1) + 1
        for tile in range(region.tile(first), region.tile(last) + 1)
        if first <= last
    }


def _sizes(tokens: int) -> list[int]:
    """Return sizes of chunks to try, up to one that holds all tokens: powers of two."""
    smallest = max(1, (tokens // MOST_CHUNKS).bit_length())
    return [2**power for power in range(smallest, (tokens - 1).bit_length() + 1)]


def _cut(tokens: int, size: int) -> list[tuple[int, int]]:
    """Return size and begin of chunks; the first one takes what is left over.

    So the last one, which attends to most, is a whole one.
    """
    first = tokens % size or min(size, tokens)
    return [(first, 0), *((size, begin) for begin in range(first, tokens, size))]
