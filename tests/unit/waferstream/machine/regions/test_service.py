"""Decoders served from one or several wafers, with and without a draft."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.errors import raises
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.machine.hardware import CS3, WSE2, override
from waferstream.machine.regions.decoder import Decoder
from waferstream.machine.regions.published import DECODERS, DRAFTS
from waferstream.machine.regions.service import FIRST_SERVICE, SERVED_CONTEXT, SERVICE, Service

SMALL = Decoder(dim=12, ffn=20, layers=1, kv_dim=8)
LLAMA_70B = DECODERS["llama-3.1-70b"]
DRAFTED = Service(LLAMA_70B, SERVED_CONTEXT, draft=DRAFTS["llama-3.1-70b"])
ALONE = Service(LLAMA_70B, SERVED_CONTEXT)


@pytest.mark.parametrize(
    ("name", "spec", "published"),
    [
        ("llama-3.1-8b", FIRST_SERVICE, 1800),
        ("llama-3.1-8b", SERVICE, 2200),
        ("llama-3.1-70b", SERVICE, 2100),
    ],
)
def test_token_s_meets_its_calibration_rows(name: str, spec: object, published: float) -> None:
    """I0001, I0011 and I0005: three constants for three rows."""
    assert isinstance(spec, type(SERVICE))
    service = Service(DECODERS[name], SERVED_CONTEXT, spec, DRAFTS.get(name))
    assert 1 / service.token_s(SERVED_CONTEXT) == pytest.approx(published, rel=0.01)


def test_regions_fit_the_shorter_side_of_a_wafer() -> None:
    """Also on a wafer that is wider than high."""
    flat = CS3.model_copy(update={"fabric": override(WSE2, columns=200, rows=60)})
    spec = SERVICE.model_copy(update={"system": flat})
    assert Service(SMALL, 12, spec).layout.region.side <= 60


def test_seventy_billion_parameters_lie_on_four_wafers() -> None:
    """As published (I0005); each of the three hops and the way back adds its 5 us."""
    assert ALONE.layout.num_wafers == 4
    near = SERVICE.model_copy(update={"wafer_hop_ps": 0})
    without = Service(LLAMA_70B, SERVED_CONTEXT, near).pipeline.token(100)
    token = ALONE.pipeline.token(100)
    assert token.total_ps - without.total_ps == 4 * SERVICE.wafer_hop_ps
    assert (token.hop_ps, token.cycle_ps) == (3 * SERVICE.wafer_hop_ps, SERVICE.wafer_hop_ps)


def test_decoder_that_fits_no_pipeline_is_refused() -> None:
    """With the most wafers that are allowed."""
    with raises(ApplianceResourceExhausted, "decoder-exceeds-service"):
        Service(LLAMA_70B, SERVED_CONTEXT, most_wafers=3)
    with raises(ApplianceResourceExhausted, "decoder-exceeds-service"):
        Service(LLAMA_70B, 10**9)


def test_a_draft_speeds_up_a_large_model() -> None:
    """By less than the tokens of a pass, which wait for one another and for the draft."""
    gain = ALONE.token_s(SERVED_CONTEXT) / DRAFTED.token_s(SERVED_CONTEXT)
    assert 1 < gain < DRAFTED.tokens_of_round(SERVED_CONTEXT)
    assert DRAFTED.round(SERVED_CONTEXT).waiting_ps == DRAFTED.guesses(
        SERVED_CONTEXT
    ) * ALONE.pipeline.interval_ps(SERVED_CONTEXT)


def test_a_draft_that_never_pays_is_not_asked() -> None:
    """A model does not guess faster than itself."""
    small = DECODERS["llama-3.2-1b"]
    from_itself = Service(small, 64, draft=DRAFTS["llama-3.1-70b"])
    rarely = SERVICE.model_copy(update={"acceptance": 0.01})
    hopeless = Service(LLAMA_70B, 64, rarely, DRAFTS["llama-3.1-70b"])
    assert hopeless.guesses(64) == 0
    assert hopeless.tokens(10, 7).total_ps == pytest.approx(
        Service(LLAMA_70B, 64, rarely).tokens(10, 7).total_ps, rel=1e-3
    )
    assert from_itself.guesses(64) == 0


@given(st.integers(1, 900), st.integers(0, 100))
def test_causes_add_up_for_any_request(prompt: int, output: int) -> None:
    """In picoseconds, with and without a draft; more tokens never take less time."""
    for service in (ALONE, DRAFTED):
        found = service.tokens(prompt, output)
        assert found.total_ps == sum(found.by_cause.values())
        assert found.total_ps <= service.tokens(prompt, output + 1).total_ps
