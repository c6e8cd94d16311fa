"""Prefill, decode and whole requests."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waferstream.core.errors import ConfigError
from waferstream.machine.hardware import WSE3
from waferstream.machine.regions.decoder import Decoder
from waferstream.machine.regions.mesh import (
    alignment_cycles,
    all_reduce_cycles,
    matmul_cycles,
    matvec_cycles,
)
from waferstream.machine.regions.phases import (
    decode_cycles_per_layer,
    decode_s,
    decode_s_per_token,
    end_to_end_s,
    prefill_cycles_per_layer,
    prefill_s,
    relayout_s,
)
from waferstream.machine.regions.region import PeCosts, Region

SMALL = Decoder(dim=12, ffn=20, layers=1, kv_dim=8)
"""On 4 x 4 PEs a PE holds 3 of the width, 5 of the feed-forward width, 2 of keys and values."""

LLAMA_8B = Decoder(dim=4096, ffn=14336, layers=32, kv_dim=4096)
"""LLaMA3-8B as run by the authors of WaferLLM: keys and values as wide as queries."""


def test_prefill_s_and_decode_s_meet_their_calibration_rows() -> None:
    """T0138, T0140 and T0174: two constants for three rows leave at most 2 %."""
    prefill = [4096 / prefill_s(LLAMA_8B, Region(side), 4096) for side in (480, 720)]
    assert prefill == pytest.approx([20320.6, 27686.5], rel=0.02)
    decode = 1 / decode_s_per_token(LLAMA_8B, Region(420), 4096)
    assert decode == pytest.approx(2699.9, rel=0.02)


@pytest.mark.parametrize(("side", "published"), [(600, 25037.2)])
def test_prefill_s_between_the_fitted_sides(side: int, published: float) -> None:
    """T0139, never fitted."""
    predicted = 4096 / prefill_s(LLAMA_8B, Region(side), 4096)
    assert predicted == pytest.approx(published, rel=0.10)


@pytest.mark.parametrize(("side", "published"), [(540, 2501.5), (660, 2243.3)])
def test_decode_s_per_token_on_larger_regions(side: int, published: float) -> None:
    """T0175 and T0176, never fitted."""
    predicted = 1 / decode_s_per_token(LLAMA_8B, Region(side), 4096)
    assert predicted == pytest.approx(published, rel=0.10)


@pytest.mark.parametrize(
    ("prompt", "output", "published"),
    [(2048, 128, 764.4), (4096, 128, 604.4), (2048, 2048, 2370.3), (4096, 4096, 2459.0)],
)
def test_end_to_end_s_of_published_requests(prompt: int, output: int, published: float) -> None:
    """T0114 to T0117, never fitted: prefill on 660 x 660 PEs, decode on 360 x 360."""
    seconds = end_to_end_s(LLAMA_8B, Region(660), Region(360), prompt, output)
    assert output / seconds == pytest.approx(published, rel=0.15)


def test_prefill_cycles_per_layer_term_by_term() -> None:
    """16 tokens are four per PE: nine products, five of them aligned, scores, functions."""
    region, costs = Region(4), PeCosts()
    projections = [(4, 3, 3), (4, 3, 2), (4, 3, 2), (4, 3, 3)]
    attention, feed_forward = [(4, 3, 4), (4, 4, 3)], [(4, 3, 5), (4, 3, 5), (4, 5, 3)]
    shapes = [*projections, *attention, *feed_forward]
    products = sum(matmul_cycles(*shape, region, costs).total for shape in shapes)
    aligned = sum(alignment_cycles(elements, region, costs) for elements in (12, 16, 12, 12, 20))
    scores = 4 * (2 * 16 + 8)  # two instructions and 16 values in eight wavelets, in each step
    functions = 16 + 2 * 4 * 5 + 7 * 4
    assert prefill_cycles_per_layer(SMALL, region, 16).total == pytest.approx(
        products + aligned + scores + functions * costs.function_cycles
    )


def test_decode_cycles_per_layer_term_by_term() -> None:
    """A context of 16 tokens: nine products, six vectors and four numbers that are reduced."""
    region, costs = Region(4), PeCosts()
    projections, attention = [(3, 3), (3, 2), (3, 2), (3, 3)], [(3, 4), (4, 3)]
    shapes = [*projections, *attention, (3, 5), (3, 5), (5, 3)]
    products = sum(matvec_cycles(*shape, costs) for shape in shapes)
    reduced = [3 + 2 * 2, 4, 3, 3, 2 * 5, 3, 1, 1, 1, 1]
    reduces = sum(all_reduce_cycles(elements, region, costs) for elements in reduced)
    vectors = 37 * (16 + 36 + 3 / 4)
    scalars = (7 + 3) * costs.function_cycles + (4 + 3) * costs.loop_cycles
    assert decode_cycles_per_layer(SMALL, region, 16).total == pytest.approx(
        products + reduces + vectors + scalars
    )


def test_end_to_end_s_is_prefill_relayout_and_decode() -> None:
    """Half of 2400 bytes of weights and 512 of cache cross four links, 1.125 cycles a word."""
    region = Region(4, WSE3)
    words = (2400 + 512) / 2 / 4
    assert relayout_s(SMALL, region, 16) == pytest.approx(1.125 * words / 4 / 1.1e9)
    assert end_to_end_s(SMALL, region, Region(5), 12, 3) == pytest.approx(
        prefill_s(SMALL, region, 12)
        + relayout_s(SMALL, region, 12)
        + decode_s(SMALL, Region(5), 12, 3)
    )


def test_prefill_s_gains_less_than_its_pes() -> None:
    """2.25 times the PEs are worth less than half of that (T0138 to T0140)."""
    small, large = (prefill_s(LLAMA_8B, Region(side), 4096) for side in (480, 720))
    assert 1 < small / large < 1.5


def test_costs_change_the_prediction() -> None:
    """A change of one number moves the curve."""
    slow = PeCosts(function_cycles=500)
    region = Region(420)
    assert decode_s_per_token(LLAMA_8B, region, 4096, slow) > decode_s_per_token(
        LLAMA_8B, region, 4096
    )
    slow_hops = Region(420, WSE3)
    assert decode_s_per_token(LLAMA_8B, slow_hops, 4096) > decode_s_per_token(
        LLAMA_8B, region, 4096
    )


@given(st.integers(3, 750), st.integers(1, 8192), st.integers(1, 4096))
def test_more_tokens_never_take_less_time(side: int, tokens: int, more: int) -> None:
    """Neither a longer prompt nor a longer context."""
    region = Region(side)
    for seconds in (prefill_s, decode_s_per_token):
        assert seconds(LLAMA_8B, region, tokens) <= seconds(LLAMA_8B, region, tokens + more)


@given(st.integers(100, 750), st.integers(1, 300), st.integers(1, 300))
def test_decode_s_is_the_sum_of_its_tokens(side: int, prompt: int, output: int) -> None:
    """The time of many tokens is the sum of each at its own context."""
    region = Region(side)
    one_by_one = sum(
        decode_s_per_token(LLAMA_8B, region, prompt + new) for new in range(1, output + 1)
    )
    assert decode_s(LLAMA_8B, region, prompt, output) == pytest.approx(one_by_one)


def test_grouped_queries_are_cheaper() -> None:
    """Grouped queries save projections and the move of the cache."""
    grouped = Decoder(dim=4096, ffn=14336, layers=32, kv_dim=1024)
    region = Region(420)
    few, many = (decode_cycles_per_layer(each, region, 4096) for each in (grouped, LLAMA_8B))
    assert few.compute < many.compute
    assert few.fabric < many.fabric
    assert grouped.cache_bytes(10) == LLAMA_8B.cache_bytes(10) // 4
    assert relayout_s(grouped, region, 4096) < relayout_s(LLAMA_8B, region, 4096)


@pytest.mark.parametrize("seconds", [prefill_s, decode_s_per_token, relayout_s])
def test_zero_tokens_are_refused(seconds: Callable[..., float]) -> None:
    """The error names the number."""
    with pytest.raises(ConfigError) as refused:
        seconds(LLAMA_8B, Region(420), 0)
    assert refused.value.where in {"tokens", "context"}


def test_request_without_prompt_or_output_is_refused() -> None:
    """Both are at least one token."""
    with pytest.raises(ConfigError) as refused:
        decode_s(LLAMA_8B, Region(420), 0, 1)
    assert refused.value.where == "prompt"
    with pytest.raises(ConfigError) as refused:
        end_to_end_s(LLAMA_8B, Region(420), Region(420), 128, 0)
    assert refused.value.where == "output"
