"""Places of a decoder's parts."""

from __future__ import annotations

from itertools import pairwise

import pytest

from waferstream.machine.hardware import CS3
from waferstream.machine.regions.decoder import Decoder
from waferstream.machine.regions.layout import Layout, layouts
from waferstream.machine.regions.published import DECODERS
from waferstream.machine.regions.service import Service

NAMES = ("llama-3.1-8b", "llama-3.1-70b", "gpt-oss-120b", "glm-4.7")


def _served(name: str) -> Layout:
    return Service(DECODERS[name], 1024).layout


@pytest.mark.parametrize("name", NAMES)
def test_every_layer_lies_once_and_no_regions_overlap(name: str) -> None:
    """In order, each stage on one wafer, all of them on the grid."""
    layout = _served(name)
    fabric, side = layout.region.fabric, layout.region.side
    layers = [
        layer
        for stage in layout.layer_stages
        for layer in range(stage.first_layer, stage.first_layer + stage.layers)
    ]
    assert layers == list(range(layout.decoder.layers))
    places = [place for stage in layout.stages for place in stage.places]
    assert len(set(places)) == len(places)
    assert all(place.column % side == place.row % side == 0 for place in places)
    assert all(place.column + side <= fabric.columns for place in places)
    assert all(place.row + side <= fabric.rows for place in places)
    assert all(len({place.wafer for place in stage.places}) == 1 for stage in layout.stages)


@pytest.mark.parametrize("name", NAMES)
def test_a_token_goes_to_the_region_beside(name: str) -> None:
    """The snake never jumps on a wafer."""
    layout = _served(name)
    places = [place for stage in layout.stages for place in stage.places]
    for here, there in pairwise(places):
        if here.wafer == there.wafer:
            away = abs(here.column - there.column) + abs(here.row - there.row)
            assert away == layout.region.side


@pytest.mark.parametrize("name", NAMES)
def test_weights_and_cache_fit_the_sram_of_their_stage(name: str) -> None:
    """The cache that a layout states, not one token more."""
    layout = _served(name)
    assert layout.cache_tokens >= 1024
    decoder = layout.decoder

    def fits(tokens: int) -> bool:
        return all(
            stage.layers * (decoder.layer_bytes + decoder.cache_bytes(tokens) // decoder.layers)
            <= len(stage.places) * layout.region.sram_bytes
            for stage in layout.layer_stages
        )

    assert fits(layout.cache_tokens)
    assert not fits(layout.cache_tokens + 1)


def test_layouts_need_no_more_wafers_than_they_say() -> None:
    """One wafer has no room for 70 billion parameters."""
    assert not list(layouts(DECODERS["llama-3.1-70b"], 1024, CS3, 10, 3))
    assert all(each.num_wafers <= 5 for each in layouts(DECODERS["llama-3.1-70b"], 1, CS3, 10, 5))


def test_model_of_one_layer_is_one_stage() -> None:
    """Without a vocabulary on the wafer there is neither embedding nor head."""
    tiny = Decoder(dim=64, ffn=64, layers=1, kv_dim=64)
    (stage,) = Service(tiny, 64).layout.stages
    assert (stage.part, stage.layers, len(stage.places)) == ("layers", 1, 1)
