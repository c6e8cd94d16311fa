"""Prefill, decode, whole requests and served decoders."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baselines.wafer_inference import (
    Decoder,
    PeCosts,
    Region,
    ServiceSpec,
    decode_cycles_per_layer,
    decode_s,
    decode_s_per_token,
    end_to_end_s,
    prefill_cycles_per_layer,
    prefill_s,
    relayout_s,
    service_s_per_token,
    wafer_plan,
)
from baselines.wafer_inference.mesh import (
    alignment_cycles,
    all_reduce_cycles,
    matmul_cycles,
    matvec_cycles,
)
from timing.hardware import CS3, WSE3, FabricSpec
from wsc.core.errors import ApplianceResourceExhausted, ConfigError

SMALL = Decoder(dim=12, ffn=20, layers=1, kv_dim=8)
"""On 4 x 4 PEs a PE holds 3 of the width, 5 of the feed-forward width, 2 of keys and values."""

LLAMA_8B = Decoder(dim=4096, ffn=14336, layers=32, kv_dim=4096)
"""LLaMA3-8B as the authors of WaferLLM run it, keys and values as wide as queries."""


def test_calibration_rows_are_met():
    """T0138, T0140 and T0174: two constants for three rows leave at most 2 %."""
    prefill = [4096 / prefill_s(LLAMA_8B, Region(side), 4096) for side in (480, 720)]
    assert prefill == pytest.approx([20320.6, 27686.5], rel=0.02)
    decode = 1 / decode_s_per_token(LLAMA_8B, Region(420), 4096)
    assert decode == pytest.approx(2699.9, rel=0.02)


@pytest.mark.parametrize(("side", "published"), [(600, 25037.2)])
def test_prefill_between_the_fitted_sides(side, published):
    """T0139, never fitted."""
    predicted = 4096 / prefill_s(LLAMA_8B, Region(side), 4096)
    assert predicted == pytest.approx(published, rel=0.10)


@pytest.mark.parametrize(("side", "published"), [(540, 2501.5), (660, 2243.3)])
def test_decode_slows_down_on_larger_regions(side, published):
    """T0175 and T0176, never fitted."""
    predicted = 1 / decode_s_per_token(LLAMA_8B, Region(side), 4096)
    assert predicted == pytest.approx(published, rel=0.10)


@pytest.mark.parametrize(
    ("prompt", "output", "published"),
    [(2048, 128, 764.4), (4096, 128, 604.4), (2048, 2048, 2370.3), (4096, 4096, 2459.0)],
)
def test_whole_requests(prompt, output, published):
    """T0114 to T0117, never fitted: prefill on 660 x 660 PEs, decode on 360 x 360."""
    seconds = end_to_end_s(LLAMA_8B, Region(660), Region(360), prompt, output)
    assert output / seconds == pytest.approx(published, rel=0.15)


def test_a_layer_of_prefill_written_out():
    """16 tokens are four per PE: nine products, five of them aligned, scores, functions."""
    region, costs = Region(4), PeCosts()
    projections = [(4, 3, 3), (4, 3, 2), (4, 3, 2), (4, 3, 3)]
    attention, feed_forward = [(4, 3, 4), (4, 4, 3)], [(4, 3, 5), (4, 3, 5), (4, 5, 3)]
    shapes = [*projections, *attention, *feed_forward]
    products = sum(matmul_cycles(*shape, region, costs) for shape in shapes)
    aligned = sum(alignment_cycles(elements, region, costs) for elements in (12, 16, 12, 12, 20))
    scores = 4 * (2 * 16 + 8)  # two instructions and 16 values in eight wavelets, in each step
    functions = 16 + 2 * 4 * 5 + 7 * 4
    assert prefill_cycles_per_layer(SMALL, region, 16) == pytest.approx(
        products + aligned + scores + functions * costs.function_cycles
    )


def test_a_layer_of_decode_written_out():
    """A context of 16 tokens: nine products, six vectors and four numbers that are reduced."""
    region, costs = Region(4), PeCosts()
    projections, attention = [(3, 3), (3, 2), (3, 2), (3, 3)], [(3, 4), (4, 3)]
    shapes = [*projections, *attention, (3, 5), (3, 5), (5, 3)]
    products = sum(matvec_cycles(*shape, costs) for shape in shapes)
    reduced = [3 + 2 * 2, 4, 3, 3, 2 * 5, 3, 1, 1, 1, 1]
    reduces = sum(all_reduce_cycles(elements, region, costs) for elements in reduced)
    vectors = 37 * (16 + 36 + 3 / 4)
    scalars = (7 + 3) * costs.function_cycles + (4 + 3) * costs.loop_cycles
    assert decode_cycles_per_layer(SMALL, region, 16) == pytest.approx(
        products + reduces + vectors + scalars
    )


def test_a_request_is_prefill_the_move_and_its_tokens():
    """Half of 2400 bytes of weights and 512 of cache cross four links, 1.125 cycles a word."""
    region = Region(4, WSE3)
    words = (2400 + 512) / 2 / 4
    assert relayout_s(SMALL, region, 16) == pytest.approx(1.125 * words / 4 / 1.1e9)
    assert end_to_end_s(SMALL, region, Region(5), 12, 3) == pytest.approx(
        prefill_s(SMALL, region, 12)
        + relayout_s(SMALL, region, 12)
        + decode_s(SMALL, Region(5), 12, 3)
    )


def test_prefill_gains_less_than_its_pes():
    """2.25 times the PEs are worth less than half of that (T0138 to T0140)."""
    small, large = (prefill_s(LLAMA_8B, Region(side), 4096) for side in (480, 720))
    assert 1 < small / large < 1.5


def test_constants_move_the_prediction():
    """A researcher who changes one number sees the curve move."""
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
def test_more_tokens_never_take_less(side, tokens, more):
    """Neither a longer prompt nor a longer context."""
    region = Region(side)
    for seconds in (prefill_s, decode_s_per_token):
        assert seconds(LLAMA_8B, region, tokens) <= seconds(LLAMA_8B, region, tokens + more)


@given(st.integers(100, 750), st.integers(1, 300), st.integers(1, 300))
def test_tokens_come_one_after_the_other(side, prompt, output):
    """The time of many tokens is the sum of each at its own context."""
    region = Region(side)
    one_by_one = sum(
        decode_s_per_token(LLAMA_8B, region, prompt + new) for new in range(1, output + 1)
    )
    assert decode_s(LLAMA_8B, region, prompt, output) == pytest.approx(one_by_one)


def test_narrow_keys_and_values_are_cheaper():
    """Grouped queries save projections and the move of the cache."""
    grouped = Decoder(dim=4096, ffn=14336, layers=32, kv_dim=1024)
    region = Region(420)
    assert decode_cycles_per_layer(grouped, region, 4096) < decode_cycles_per_layer(
        LLAMA_8B, region, 4096
    )
    assert grouped.cache_bytes(10) == LLAMA_8B.cache_bytes(10) // 4
    assert relayout_s(grouped, region, 4096) < relayout_s(LLAMA_8B, region, 4096)


def test_the_weights_of_a_decoder():
    """LLaMA3-8B has 6.98 billion parameters beside embedding and head, two bytes each."""
    grouped = Decoder(dim=4096, ffn=14336, layers=32, kv_dim=1024)
    assert grouped.weight_bytes == pytest.approx(2 * 6.98e9, rel=0.001)


@pytest.mark.parametrize("seconds", [prefill_s, decode_s_per_token, relayout_s])
def test_no_tokens_are_refused(seconds):
    """Zero or fewer tokens are an error that says so."""
    with pytest.raises(ConfigError, match=r"tokens|context"):
        seconds(LLAMA_8B, Region(420), 0)


def test_no_output_is_refused():
    """A request without a new token is none, nor is one without a prompt."""
    with pytest.raises(ConfigError, match="prompt"):
        decode_s(LLAMA_8B, Region(420), 0, 1)
    with pytest.raises(ConfigError, match="output"):
        end_to_end_s(LLAMA_8B, Region(420), Region(420), 128, 0)


def test_a_served_decoder_meets_its_calibration_row():
    """T0214: LLaMA3.1-8B with 1800 tokens/s for each user, on one wafer."""
    served = Decoder(dim=4096, ffn=14336, layers=32, kv_dim=1024)
    assert wafer_plan(served, 1024, ServiceSpec())[0] == 1
    assert 1 / service_s_per_token(served, 1024, ServiceSpec()) == pytest.approx(1800, rel=0.02)


def test_a_served_decoder_takes_the_fastest_regions_that_hold_it():
    """300 x 300 PEs decode fastest; six of them hold 26.5 GB, twelve of 240 x 240 hold 34 GB."""
    for layers, side in ((32, 300), (64, 240)):  # 14 GB, 28 GB
        served = Decoder(dim=4096, ffn=14336, layers=layers, kv_dim=1024)
        num_wafers, region = wafer_plan(served, 1024, ServiceSpec())
        assert (num_wafers, region.side) == (1, side)


def test_regions_fit_the_shorter_side_of_the_wafer():
    """Of a wafer that is wider than high, too."""
    flat = CS3.model_copy(update={"fabric": FabricSpec(columns=200, rows=60)})
    assert wafer_plan(SMALL, 12, ServiceSpec(system=flat))[1].side == 60


def test_a_large_decoder_takes_several_wafers_and_their_hops():
    """70 billion parameters are 137 GB beside 43 GB of a wafer; each hop adds its 5 us."""
    large = Decoder(dim=8192, ffn=28672, layers=80, kv_dim=1024)
    num_wafers, region = wafer_plan(large, 1024, ServiceSpec())
    assert num_wafers == 4
    assert region.fabric == CS3.fabric
    far = ServiceSpec(wafer_hop_s=1.0)
    near = ServiceSpec(wafer_hop_s=0.0)
    hops_s = service_s_per_token(large, 1024, far) - service_s_per_token(large, 1024, near)
    assert hops_s == pytest.approx(3.0)


def test_a_larger_decoder_is_not_served_out_of_all_proportion_slower():
    """405 billion parameters fit 20 wafers only in tiny regions; two wafers more are worth it."""
    small = Decoder(dim=8192, ffn=28672, layers=80, kv_dim=1024)
    large = Decoder(dim=16384, ffn=53248, layers=126, kv_dim=1024)
    work = (large.dim * large.layers) / (small.dim * small.layers)
    slower = service_s_per_token(large, 1024, ServiceSpec()) / service_s_per_token(
        small, 1024, ServiceSpec()
    )
    assert 1 < slower < 1.5 * work
    assert wafer_plan(large, 1024, ServiceSpec())[0] == 22


def test_a_decoder_that_fits_no_pipeline_is_refused():
    """Instead of a search without end."""
    with pytest.raises(ApplianceResourceExhausted, match="does not fit"):
        service_s_per_token(LLAMA_8B, 10**9, ServiceSpec(most_wafers=2))
    large = Decoder(dim=8192, ffn=28672, layers=80, kv_dim=1024)
    assert wafer_plan(large, 1024, ServiceSpec(most_wafers=4))[0] == 4
    with pytest.raises(ApplianceResourceExhausted, match="at most 3 wafers"):
        wafer_plan(large, 1024, ServiceSpec(most_wafers=3))
