"""Tokens and prompts that pass the stages of a layout."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waferstream.core.units import PS_PER_S
from waferstream.machine.regions.phases import decode_s_per_token
from waferstream.machine.regions.published import DECODERS
from waferstream.machine.regions.service import SERVED_CONTEXT, Service
from waferstream.machine.regions.token_time import TokenTime

LLAMA_8B = Service(DECODERS["llama-3.1-8b"], 8192).pipeline
GLM = Service(DECODERS["glm-4.7"], SERVED_CONTEXT).pipeline


def test_layers_of_a_token_are_those_of_a_region() -> None:
    """Times the factor of the service; head, moves and the way back come on top."""
    region, decoder = LLAMA_8B.layout.region, LLAMA_8B.layout.decoder
    layers_ps = 0.984 * PS_PER_S * decode_s_per_token(decoder, region, 4096)
    token = LLAMA_8B.token(4096)
    assert layers_ps < token.total_ps < 1.05 * layers_ps
    assert token.waiting_ps == token.hop_ps == 0
    assert token.cycle_ps > 0


def test_tokens_are_the_sum_of_each() -> None:
    """To the picosecond."""
    one_by_one = sum((LLAMA_8B.token(100 + new) for new in range(1, 51)), TokenTime())
    assert LLAMA_8B.tokens(100, 50) == one_by_one
    assert LLAMA_8B.tokens(100, 0) == TokenTime()


def test_prompt_passes_in_parallel_through_the_regions() -> None:
    """Faster than as many tokens in turn; a prompt of one token is one."""
    assert LLAMA_8B.prompt(1) == LLAMA_8B.token(1)
    in_turn = LLAMA_8B.tokens(1, 500).total_ps
    assert LLAMA_8B.prompt(500).total_ps < in_turn / 3


def test_chunks_cover_a_prompt() -> None:
    """Each begins where the one before ends; the last is a whole one."""
    for tokens in (1, 7, 640, 5000):
        chunks = LLAMA_8B.chunks(tokens)
        assert [begin for _, begin in chunks] == [
            sum(size for size, _ in chunks[:index]) for index in range(len(chunks))
        ]
        assert sum(size for size, _ in chunks) == tokens
        assert chunks[-1][0] == max(size for size, _ in chunks)


def test_experts_that_need_several_regions_cost_the_way_to_them() -> None:
    """A layer of GLM has some 8 GB."""
    layout = GLM.layout
    assert layout.regions_per_layer > 1
    alone = decode_s_per_token(layout.decoder, layout.region, 100)
    assert GLM.token(100).fabric_ps + GLM.token(100).compute_ps > 0.984 * PS_PER_S * alone


@given(st.integers(1, 6000), st.integers(1, 2000))
def test_longer_contexts_and_prompts_never_take_less_time(tokens: int, more: int) -> None:
    """Monotone in the context, the prompt, and the interval of the busiest stage."""
    assert LLAMA_8B.token(tokens).total_ps <= LLAMA_8B.token(tokens + more).total_ps
    assert LLAMA_8B.interval_ps(tokens) <= LLAMA_8B.interval_ps(tokens + more)
    assert LLAMA_8B.interval_ps(tokens) < LLAMA_8B.token(tokens).total_ps


@pytest.mark.parametrize("tokens", [1, 100, 3000])
def test_causes_of_a_prompt_add_up(tokens: int) -> None:
    """To the picosecond."""
    found = LLAMA_8B.prompt(tokens)
    assert found.total_ps == sum(found.by_cause.values())
    assert (found.waiting_ps > 0) == (len(LLAMA_8B.chunks(tokens)) > 1)
