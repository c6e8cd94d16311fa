"""Where the parts of a decoder lie: regions of a side, along a snake over each wafer of a row.

A *stage* is what one token passes at a time: layers that share a region, or a layer whose experts
need several regions; embedding and head have stages of their own. All wafers are alike, and their
grids without gaps; the working part of a wafer with defects is such a grid.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from waferstream.machine.hardware import WaferSpec
from waferstream.machine.regions.decoder import ELEMENT_BYTES, Decoder
from waferstream.machine.regions.region import Region

Part = Literal["embedding", "layers", "head"]


class Place(NamedTuple):
    """A region: its wafer, and the column and row of its first PE."""

    wafer: int
    column: int
    row: int


@dataclass(frozen=True)
class Stage:
    """A part of a decoder, and first column and row of its regions, all of them on one wafer."""

    part: Part
    first_layer: int
    layers: int
    wafer: int
    regions: tuple[tuple[int, int], ...]

    @property
    def places(self) -> tuple[Place, ...]:
        """Where the regions lie."""
        return tuple(Place(self.wafer, *at) for at in self.regions)

    def as_json(self) -> dict[str, Any]:
        """Return the stage as plain data."""
        return {
            "part": self.part,
            "layers": [self.first_layer, self.first_layer + self.layers],
            "regions": [list(place) for place in self.places],
        }


@dataclass(frozen=True)
class Layout:
    """The stages of a decoder in the order of a token."""

    decoder: Decoder
    region: Region
    num_wafers: int
    stages: tuple[Stage, ...]

    @property
    def layer_stages(self) -> tuple[Stage, ...]:
        """Stages of layers."""
        return tuple(stage for stage in self.stages if stage.part == "layers")

    @property
    def busiest_layers(self) -> int:
        """Layers of the fullest stage."""
        return max(stage.layers for stage in self.layer_stages)

    @property
    def regions_per_layer(self) -> int:
        """Regions of a layer: more than one where its experts need them."""
        return len(self.layer_stages[0].regions)

    @property
    def head_regions(self) -> int:
        """Regions that share the head."""
        return sum(len(stage.regions) for stage in self.stages if stage.part == "head")

    @property
    def sram_bytes(self) -> int:
        """SRAM of the regions in use."""
        return sum(len(stage.regions) for stage in self.stages) * self.region.sram_bytes

    @property
    def cache_tokens(self) -> int:
        """Tokens whose keys and values fit beside the weights of every stage."""
        return min(
            (len(stage.regions) * self.region.sram_bytes - stage.layers * self.decoder.layer_bytes)
            // (stage.layers * _cache_bytes(self.decoder))
            for stage in self.layer_stages
        )

    @property
    def return_hops(self) -> int:
        """PEs from the last region back to the first, where both lie on one wafer."""
        (column, row), (last_column, last_row) = (
            self.stages[0].regions[0],
            self.stages[-1].regions[-1],
        )
        return abs(last_column - column) + abs(last_row - row)


def layouts(
    decoder: Decoder, context: int, system: WaferSpec, step: int, most_wafers: int
) -> Iterator[Layout]:
    """Yield the layout of every side that fits on the fewest wafers it needs.

    Args:
        decoder: The model.
        context: The tokens whose keys and values must fit.
        system: Any of the wafers.
        step: Sides are its multiples.
        most_wafers: The most wafers.
    """
    for side in range(step, min(system.fabric.columns, system.fabric.rows) + 1, step):
        region = Region(side, system.fabric, system.clock_hz)
        found = _layout(decoder, context, region, most_wafers)
        if found is not None:
            yield found


def _layout(decoder: Decoder, context: int, region: Region, most_wafers: int) -> Layout | None:
    """Return the layout on regions of this side, None if it needs too many wafers."""
    layer_bytes = decoder.layer_bytes + context * _cache_bytes(decoder)
    regions = -(-layer_bytes // region.sram_bytes)
    together = max(1, region.sram_bytes // layer_bytes)
    of_table, of_wafer = _table_regions(decoder, region), len(region.snake)
    if max(regions, of_table) > of_wafer:
        return None
    wafers_of = partial(_wafers_of, regions=regions, of_table=of_table, of_wafer=of_wafer)
    fewest = -(-decoder.layers // together)
    wafers = wafers_of(fewest)
    if wafers > most_wafers:
        return None
    # Regions that are left make stages of fewer layers, through which more users pass at a time.
    most = bisect_right(range(decoder.layers + 1), wafers, lo=fewest, key=wafers_of) - 1
    return Layout(decoder, region, wafers, tuple(_stages(decoder, region, most, regions)))


def _wafers_of(num_stages: int, regions: int, of_table: int, of_wafer: int) -> int:
    """Return the wafers of an embedding, stages of layers and a head, in this order."""
    on_first, on_others = (of_wafer - of_table) // regions, of_wafer // regions
    others = max(0, -(-(num_stages - on_first) // on_others))
    on_last = num_stages if not others else num_stages - on_first - (others - 1) * on_others
    used = on_last * regions + (0 if others else of_table)
    return others + 1 + (used + of_table > of_wafer)


class _Snake:
    """Regions one after the other; those of a stage lie on one wafer."""

    def __init__(self, region: Region) -> None:
        self._corners = region.snake
        self._wafer = self._used = 0

    def stage(self, regions: int) -> tuple[int, tuple[tuple[int, int], ...]]:
        """Return the wafer of the next regions, and these."""
        if self._used + regions > len(self._corners):
            self._wafer, self._used = self._wafer + 1, 0
        begin = self._used
        self._used += regions
        return self._wafer, self._corners[begin : self._used]


def _stages(decoder: Decoder, region: Region, num_stages: int, regions: int) -> Iterator[Stage]:
    """Yield embedding, layers as evenly as they go, and head."""
    snake = _Snake(region)
    of_table = _table_regions(decoder, region)
    if of_table:
        yield Stage("embedding", 0, 0, *snake.stage(of_table))
    first = 0
    for index in range(num_stages):
        end = (index + 1) * decoder.layers // num_stages
        yield Stage("layers", first, end - first, *snake.stage(regions))
        first = end
    if of_table:
        yield Stage("head", first, 0, *snake.stage(of_table))


def _table_regions(decoder: Decoder, region: Region) -> int:
    """Return the regions of the embedding, or of the head."""
    return -(-decoder.head_bytes // region.sram_bytes)


def _cache_bytes(decoder: Decoder) -> int:
    """Return the bytes of keys and values of a token in one layer."""
    return 2 * ELEMENT_BYTES * decoder.kv_dim
