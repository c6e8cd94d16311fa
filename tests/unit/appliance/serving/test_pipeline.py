"""Rows of a pipeline: the same bits in any company, and refusals of models that are not row-wise."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from appliance.local import LocalRoles
from appliance.serving.pipeline import LOSSES, Pipeline, wafer_specs
from appliance.serving.proof import prove
from csnode.engine.spec import EngineName, EngineSpec
from csnode.inference.cache import BLOCK
from csnode.micro_batch import SramLedger
from tests.support.errors import raises
from tests.support.models.small_decoder import (
    CONTEXT,
    VOCABULARY,
    Decoder,
    Mix,
    caches_of,
    make_pipeline,
)
from waferstream.compiler.extend import compile_extend
from waferstream.core.errors import (
    ApplianceResourceExhausted,
    ApplianceRuntimeServerError,
    ConfigError,
)
from waferstream.core.roles.role import Command, Result, RoleSpec
from waferstream.core.serving import CacheLostError, Part
from waferstream.serving.models.loading import HeldWeights


def by_products(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    return scores.tril().softmax(-1) @ value


def over_all(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(query, key, value)


class AddsOverTokens(Decoder):
    """A model whose tokens see their neighbours beside attention."""

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        scores = super().forward(tokens, positions)
        return scores + 5 * scores.mean(1, keepdim=True)


class OfOneFunction(nn.Module):
    """Scores by a function of 50 numbers, beside attention."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.places = nn.Parameter(torch.randn(CONTEXT, 50))
        self.function = function

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.places[positions] + tokens[..., None] / 7
        key = x[..., None, :10].transpose(1, 2)
        mixed = F.scaled_dot_product_attention(key, key, key, is_causal=True)
        return self.function(x) + mixed.transpose(1, 2).flatten(2).sum(-1, keepdim=True)


def test_rows_are_the_same_alone_and_in_company() -> None:
    """To the bit: at once, token by token, in pieces, beside others."""
    pipeline = make_pipeline(Decoder())
    tokens = tuple((3 * i + 1) % VOCABULARY for i in range(130))
    at_once = pipeline.extend([Part("a", 0, tokens)])[0]
    for i, token in enumerate(tokens):
        alone = pipeline.extend([Part("b", i, (token,))])[0]
    pipeline.extend([Part("c", 0, tokens[:70]), Part("d", 0, tokens[:9])])
    in_company = pipeline.extend(
        [Part("d", 9, (5,)), Part("c", 70, tokens[70:]), Part("e", 0, (1,))]
    )
    assert torch.equal(at_once, alone)
    assert torch.equal(at_once, in_company[1])


def test_parts_ask_for_the_scores_of_their_last_tokens() -> None:
    pipeline = make_pipeline(Decoder())
    tokens = tuple((5 * i + 2) % VOCABULARY for i in range(9))
    each = torch.cat([pipeline.extend([Part("a", i, (token,))]) for i, token in enumerate(tokens)])
    asked = [Part("b", 0, tokens, 3), Part("c", 0, tokens[:4], 0), Part("d", 0, tokens[:2], 2)]
    assert torch.equal(pipeline.extend(asked), torch.cat([each[-3:], each[:2]]))


def test_refused_tokens_leave_no_trace() -> None:
    """A part that begins within the cache replaces what it has from there on."""
    pipeline = make_pipeline(Decoder())
    tokens = tuple((5 * i + 2) % VOCABULARY for i in range(BLOCK + 9))
    expected = pipeline.extend([Part("a", 0, tokens)])
    pipeline.extend([Part("b", 0, tokens[:40] + (1,) * 60)])
    assert torch.equal(pipeline.extend([Part("b", 40, tokens[40:])]), expected)


@pytest.mark.parametrize("copied", [1, BLOCK - 1, BLOCK, BLOCK + 7])
def test_sequence_goes_on_from_the_first_tokens_of_another(copied: int) -> None:
    """With the same bits, also once the other is forgotten or has gone on."""
    pipeline = make_pipeline(Decoder())
    tokens = tuple((3 * i + 1) % VOCABULARY for i in range(BLOCK + 9))
    expected = pipeline.extend([Part("a", 0, tokens)])
    pipeline.copy("a", "b", copied)
    pipeline.copy("a", "c", copied)
    pipeline.extend([Part("a", copied, (0,) * 3)])
    pipeline.forget("a")
    assert torch.equal(pipeline.extend([Part("b", copied, tokens[copied:])]), expected)
    pipeline.extend([Part("c", copied, (0, 0))])
    pipeline.forget("b")
    pipeline.forget("c")
    assert not any(each.num_bytes for each in caches_of(pipeline))


def test_copy_leases_memory() -> None:
    memory = SramLedger("a pipeline", 10)
    pipeline = make_pipeline(memory=memory)
    pipeline.extend([Part("a", 0, (1, 2, 3, 4, 5, 6))])
    pipeline.copy("a", "b", 4)
    with raises(ApplianceResourceExhausted, "sram-ledger-exceeded"):
        pipeline.copy("a", "c", 1)
    pipeline.forget("b")
    pipeline.copy("a", "c", 1)


@pytest.mark.parametrize("engine", ["torch", "wafer"])
def test_weights_that_change_meanwhile_change_no_row(engine: EngineName) -> None:
    """As those of a mapped file that another process overwrites."""
    model = Decoder()
    spec = EngineSpec(default=engine, rows=2, columns=2)
    pipeline = make_pipeline(model, engine=spec, is_proven=False)
    parts = [Part("a", 0, (1, 4))]
    before = pipeline.rows(parts)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
    assert torch.equal(pipeline.rows(parts), before)


@pytest.mark.parametrize("function", [F.silu, F.gelu, torch.tanh, torch.Tensor.sigmoid])
def test_functions_of_any_width_are_steady(function: Callable[..., torch.Tensor]) -> None:
    """Rows of 50 elements would end in other parts of a vector in other company."""

    pipeline = make_pipeline(OfOneFunction(function))
    tokens = tuple(i % VOCABULARY for i in range(60))
    rows = pipeline.rows([Part("a", 0, tokens)])
    for length in range(1, 60):
        assert torch.equal(pipeline.rows([Part(f"{length}", 0, tokens[:length])]), rows[:length])


def test_scores_are_those_of_the_model() -> None:
    model = Decoder()
    pipeline = make_pipeline(model)
    tokens = tuple(i % VOCABULARY for i in range(40))
    plain = model(torch.tensor([tokens]), torch.arange(40)[None])[0, -1]
    torch.testing.assert_close(pipeline.extend([Part("a", 0, tokens)])[0], plain.detach())


@pytest.mark.parametrize("mix", [by_products, over_all])
def test_other_attention_is_refused(mix: Mix) -> None:
    with raises(ConfigError, "model-not-row-wise"):
        make_pipeline(Decoder(mix))


def test_model_that_relates_tokens_otherwise_is_refused() -> None:
    with raises(ConfigError, "rows-differ-from-model"):
        make_pipeline(AddsOverTokens())


def test_sequences_lease_memory_until_they_are_forgotten() -> None:
    """What does not fit is refused, and what others have stays."""
    memory = SramLedger("a pipeline", 10)
    pipeline = make_pipeline(memory=memory)
    pipeline.extend([Part("a", 0, (1, 2, 3, 4)), Part("b", 0, (1, 2))])
    pipeline.extend([Part("a", 4, (5,))])
    with raises(ApplianceResourceExhausted, "sram-ledger-exceeded"):
        pipeline.extend([Part("c", 0, (1, 2, 3, 4))])
    pipeline.forget("a")
    pipeline.forget("a")
    pipeline.extend([Part("c", 0, (1, 2, 3, 4))])


@pytest.mark.parametrize("num_wafers", [2, 3, 4])
def test_rows_do_not_depend_on_the_number_of_wafers(num_wafers: int) -> None:
    tokens = tuple((3 * i + 1) % VOCABULARY for i in range(BLOCK + 9))
    expected = make_pipeline().rows([Part("a", 0, tokens)])
    pipeline = make_pipeline(num_wafers=num_wafers)
    assert torch.equal(pipeline.rows([Part("a", 0, tokens)]), expected)
    assert len(caches_of(pipeline)) == num_wafers


class LosesWafers(LocalRoles):
    """Wafers of which one is lost in each of the next calls that ``losses`` names."""

    def __init__(self, specs: Sequence[RoleSpec]) -> None:
        super().__init__(specs)
        self.losses: list[str] = []

    def do(self, to: Collection[str] | None, command: Command[Result]) -> dict[str, Result]:
        if self.losses:
            lost = self.losses.pop(0)
            error = ApplianceRuntimeServerError("a wafer died", code="role-died", where=lost)
            self._failed[lost] = error
            raise error
        return super().do(to, command)


def pipeline_that_loses_wafers(memory: SramLedger) -> tuple[Pipeline, LosesWafers]:
    module = Decoder()
    specs = wafer_specs(compile_extend(module, module), HeldWeights(module), 2)
    roles = LosesWafers(specs)
    return Pipeline(roles, specs, memory, token_bytes=1), roles


@pytest.mark.parametrize("num_losses", [1, 2, LOSSES])
def test_wafers_that_are_lost_one_after_the_other_are_replaced(num_losses: int) -> None:
    """Also while those before them are replaced; nothing keeps its memory."""
    memory = SramLedger("a pipeline", 10)
    pipeline, roles = pipeline_that_loses_wafers(memory)
    tokens = (1, 2, 3, 4, 5, 6)
    expected = pipeline.extend([Part("a", 0, tokens)])
    roles.losses = [f"wafer-{place % 2}" for place in range(num_losses)]
    with pytest.raises(CacheLostError):
        pipeline.extend([Part("a", 6, (7,))])
    assert torch.equal(pipeline.extend([Part("b", 0, tokens)]), expected)


def test_wafer_that_is_lost_before_the_first_request_is_replaced() -> None:
    memory = SramLedger("a pipeline", 1000)
    pipeline, roles = pipeline_that_loses_wafers(memory)
    roles.losses = ["wafer-1"]
    prove(pipeline, Decoder(), VOCABULARY, CONTEXT)


def test_wafers_that_are_always_lost_end_the_service() -> None:
    pipeline, roles = pipeline_that_loses_wafers(SramLedger("a pipeline", 10))
    roles.losses = ["wafer-0"] * (LOSSES + 1)
    with raises(ApplianceRuntimeServerError, "role-died"):
        pipeline.extend([Part("a", 0, (1,))])


@pytest.mark.parametrize("num_wafers", [0, 5])
def test_wafer_without_a_layer_is_refused(num_wafers: int) -> None:
    with raises(ConfigError, "wafers-without-layers"):
        make_pipeline(num_wafers=num_wafers)


@pytest.mark.parametrize("name", ["wafer", "wafer-cycles"])
def test_array_of_pes_answers_in_its_order(name: EngineName) -> None:
    """Close to torch, with the same bits whether rows come together or one by one."""
    tokens = (1, 4)
    pipeline = make_pipeline(engine=EngineSpec(default=name, rows=2, columns=2), is_proven=False)
    rows = pipeline.rows([Part("a", 0, tokens)])
    torch.testing.assert_close(rows, make_pipeline().rows([Part("a", 0, tokens)]))
    cycles = pipeline.take_cycles()
    assert (name == "wafer-cycles") == (cycles.get("streamed_product", 0) > 0)
    assert not pipeline.take_cycles()
    for i, token in enumerate(tokens):
        assert torch.equal(pipeline.rows([Part("b", i, (token,))])[0], rows[i])
