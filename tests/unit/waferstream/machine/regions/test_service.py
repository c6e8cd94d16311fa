"""Decoders served from one or several wafers."""

import pytest

from tests.support.errors import raises
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.machine.hardware import CS3, WSE2, override
from waferstream.machine.regions import (
    Decoder,
    ServiceSpec,
    service_s_per_token,
    wafer_plan,
)

SMALL = Decoder(dim=12, ffn=20, layers=1, kv_dim=8)
LLAMA_8B = Decoder(dim=4096, ffn=14336, layers=32, kv_dim=4096)


def test_service_s_per_token_meets_its_calibration_row() -> None:
    """T0214: LLaMA3.1-8B with 1800 tokens/s per user, on one wafer."""
    served = Decoder(dim=4096, ffn=14336, layers=32, kv_dim=1024)
    assert wafer_plan(served, 1024, ServiceSpec())[0] == 1
    assert 1 / service_s_per_token(served, 1024, ServiceSpec()) == pytest.approx(1800, rel=0.02)


def test_wafer_plan_takes_the_fastest_regions_that_fit() -> None:
    """300 x 300 PEs decode fastest; six of them hold 26.5 GB, twelve of 240 x 240 hold 34 GB."""
    for layers, side in ((32, 300), (64, 240)):  # 14 GB, 28 GB
        served = Decoder(dim=4096, ffn=14336, layers=layers, kv_dim=1024)
        num_wafers, region = wafer_plan(served, 1024, ServiceSpec())
        assert (num_wafers, region.side) == (1, side)


def test_wafer_plan_regions_fit_the_shorter_side() -> None:
    """Also on a wafer that is wider than high."""
    flat = CS3.model_copy(update={"fabric": override(WSE2, columns=200, rows=60)})
    assert wafer_plan(SMALL, 12, ServiceSpec(system=flat))[1].side == 60


def test_large_decoder_takes_several_wafers_and_their_hops() -> None:
    """70 billion parameters are 137 GB, against 43 GB of a wafer; each hop adds its 5 us."""
    large = Decoder(dim=8192, ffn=28672, layers=80, kv_dim=1024)
    num_wafers, region = wafer_plan(large, 1024, ServiceSpec())
    assert num_wafers == 4
    assert region.fabric == CS3.fabric
    far = ServiceSpec(wafer_hop_s=1.0)
    near = ServiceSpec(wafer_hop_s=0.0)
    hops_s = service_s_per_token(large, 1024, far) - service_s_per_token(large, 1024, near)
    assert hops_s == pytest.approx(3.0)


def test_larger_decoder_slows_down_in_proportion() -> None:
    """405 billion parameters fit 20 wafers only in tiny regions; two wafers more are worth it."""
    small = Decoder(dim=8192, ffn=28672, layers=80, kv_dim=1024)
    large = Decoder(dim=16384, ffn=53248, layers=126, kv_dim=1024)
    work = (large.dim * large.layers) / (small.dim * small.layers)
    slower = service_s_per_token(large, 1024, ServiceSpec()) / service_s_per_token(
        small, 1024, ServiceSpec()
    )
    assert 1 < slower < 1.5 * work
    assert wafer_plan(large, 1024, ServiceSpec())[0] == 22


def test_decoder_that_fits_no_pipeline_is_refused() -> None:
    """The search ends at ``most_wafers``."""
    with raises(ApplianceResourceExhausted, "decoder-exceeds-service"):
        service_s_per_token(LLAMA_8B, 10**9, ServiceSpec(most_wafers=2))
    large = Decoder(dim=8192, ffn=28672, layers=80, kv_dim=1024)
    assert wafer_plan(large, 1024, ServiceSpec(most_wafers=4))[0] == 4
    with raises(ApplianceResourceExhausted, "decoder-exceeds-service"):
        wafer_plan(large, 1024, ServiceSpec(most_wafers=3))
