"""The passes keep the numerics, and each has its effect; random ops draw by key."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx, nn

from tests.support.programs.captured_steps import captured
from tests.support.programs.kernels import run_eagerly, run_kernels
from tests.support.programs.plain_steps import backward_step
from tests.support.roles.local_machine import BF16, FP32, Regression, compile_model, random_batches
from tests.support.runs.tiny_training import GPT, LLAMA, LOADER
from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.compiler.compiled import Compiled
from waferstream.compiler.passes.pipeline import OPTIONAL, merge_views, run_passes
from waferstream.numerics.keyed_random import KEY_INPUT
from waferstream.numerics.precision import StreamPrecision
from waferstream.workload.data import build_source
from waferstream.workload.models import build_model

ALIASES = {torch.ops.aten.detach.default, torch.ops.aten.alias.default}

TURN, VIEW = torch.ops.aten.t.default, torch.ops.aten.view.default


def calls(found: Captured) -> list[fx.Node]:
    return [node for node in found.graph.nodes if node.op == "call_function"]


def sources_of(graph: fx.Graph) -> dict[fx.Node, set[fx.Node]]:
    """Return the placeholders that each node depends on."""
    sources: dict[fx.Node, set[fx.Node]] = {}
    for node in graph.nodes:
        own = {node} if node.op == "placeholder" else set()
        sources[node] = own.union(*(sources[operand] for operand in node.all_input_nodes))
    return sources


@pytest.mark.parametrize("precision", [FP32, BF16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("config", [GPT, LLAMA], ids=["gpt", "llama"])
def test_no_weight_only_value_crosses_into_another_segment(
    config: dict[str, Any], precision: StreamPrecision, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Casts and transposes of weights are cloned where they are read."""
    monkeypatch.setattr("waferstream.compiler.passes.layers.SMALL_LAYER_BYTES", 1)
    step = captured(config, precision)
    run_passes(step)
    weights, sources = set(step.weights), sources_of(step.graph)
    crossing = 0
    for node in calls(step):
        for operand in node.all_input_nodes:
            if operand.op == "call_function" and operand.meta["segment"] != node.meta["segment"]:
                crossing += 1
                assert not sources[operand] or sources[operand] - weights, operand.name
    assert crossing


def test_run_passes_gives_every_op_a_segment_and_a_kind() -> None:
    """Clones included."""
    step = captured()
    run_passes(step)
    for node in calls(step):
        assert node.meta["segment"].phase in {"forward", "backward"}
        assert node.meta["kind"]


def test_drop_aliases_removes_detach_and_alias() -> None:
    """They have no meaning without autograd."""
    step = captured()
    assert any(node.target in ALIASES for node in calls(step))
    run_passes(step)
    assert not any(node.target in ALIASES for node in calls(step))


@pytest.mark.parametrize("disabled", [(), *[(name,) for name in sorted(OPTIONAL)], tuple(OPTIONAL)])
def test_optional_passes_change_no_bit(disabled: tuple[str, ...]) -> None:
    """Each of them can be disabled."""
    model, batch = Regression(depth=3), random_batches(1, 2)[0]
    request = CompileRequest(FP32, 2, 1, "test", disabled_passes=disabled)
    compiled, _ = compile_step(backward_step(model), model, list(batch.items()), request)
    results, gradients = run_kernels(compiled, model, batch)
    loss, expected = run_eagerly(model, batch, FP32, 1)
    assert torch.equal(results[0], loss)
    assert all(torch.equal(gradients[name], expected[name]) for name in expected)


def test_optional_passes_change_no_draw_of_stochastic_rounding() -> None:
    """Results are numbered before ops that nothing reads are erased."""

    class Wasteful(Regression):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            _ = x.to(torch.bfloat16) * 3
            return super().forward(x.to(torch.bfloat16), y)

    model, batch = Wasteful(), random_batches(1, 2)[0]
    found = []
    for disabled in ((), tuple(OPTIONAL)):
        precision = StreamPrecision("bfloat16", "bfloat16", rounding="stochastic")
        request = CompileRequest(precision, 2, 1, "test", disabled_passes=disabled)
        compiled, _ = compile_step(backward_step(model), model, list(batch.items()), request)
        found.append(run_kernels(compiled, model, batch, key=3)[1])
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


@pytest.mark.parametrize("name", ["assign_segments", "rematerialize_weights", "no_such_pass"])
def test_required_passes_cannot_be_disabled(name: str) -> None:
    """A program without them would be wrong."""
    with pytest.raises(ValueError, match=name):
        run_passes(captured(), disabled=[name])


Loss = Callable[[Compiled, int], torch.Tensor]


class Noisy(Regression):
    """Three random ops, of which two are equal."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = nn.functional.dropout(x, 0.5)
        y = nn.functional.dropout(y, 0.5)
        return super().forward(x + torch.rand_like(x), y)


@pytest.fixture(scope="module")
def noisy() -> Compiled:
    return compile_model(Noisy(), random_batches(1, 4)[0], 2)


@pytest.fixture(scope="module")
def loss() -> Loss:
    model, batch = Noisy(), random_batches(1, 2)[0]
    return lambda compiled, key: run_kernels(compiled, model, batch, key)[0][0]


def test_random_ops_depend_on_the_key(noisy: Compiled, loss: Loss) -> None:
    """Same key, same bits, in this process or another; another key, other bits."""
    again = pickle.loads(pickle.dumps(noisy))
    assert torch.equal(loss(noisy, 7), loss(noisy, 7))
    assert torch.equal(loss(noisy, 7), loss(again, 7))
    assert not torch.equal(loss(noisy, 7), loss(noisy, 8))


def test_random_ops_do_not_use_the_global_generator(noisy: Compiled, loss: Loss) -> None:
    """It is neither read nor advanced."""
    torch.manual_seed(1)
    first = loss(noisy, 7)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert torch.equal(loss(noisy, 7), first)
    assert torch.equal(torch.get_rng_state(), state)


def test_key_random_ops_numbers_the_ops(noisy: Compiled) -> None:
    """Two equal ops of one step draw different numbers."""
    text = "".join(kernel.text for kernel in noisy.kernels)
    used = [line for line in text.splitlines() if KEY_INPUT in line and "def " not in line]
    positions = [line.split(f"{KEY_INPUT}, ")[1].split(",")[0] for line in used]
    assert sorted(positions) == ["0", "1", "2"]


def test_in_place_draw_into_part_of_a_tensor_is_kept() -> None:
    """Its result is read through the whole tensor only."""

    class Masked(Regression):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            mask = torch.zeros(2, 4)
            mask[0].bernoulli_(1.0)
            return super().forward(x * mask, y)

    model, batch = Masked(), random_batches(1, 2)[0]
    results, _ = run_kernels(compile_model(model, batch, 1), model, batch)
    assert torch.equal(results[0], model(**batch))


def test_attention_dropout_is_keyed() -> None:
    """The vendor's default dropout of 0.1 compiles, and its draws depend on the key."""
    config = {key: value for key, value in GPT.items() if "dropout" not in key}
    model = build_model(config | {"num_hidden_layers": 1}, 0)
    batch = build_source({**LOADER, "batch_size": 2}, "test").batch(0)
    compiled = compile_model(model, batch, 1)
    first, second, third = (run_kernels(compiled, model, batch, key) for key in (1, 1, 2))
    assert first[0] == second[0] != third[0]
    assert all(torch.equal(first[1][name], second[1][name]) for name in first[1])


def test_step_without_random_ops_has_no_key_input() -> None:
    """The input exists only if an op reads it."""
    program = compile_model(Regression(), random_batches(1, 4)[0], 2).program
    assert all(KEY_INPUT not in segment.inputs for segment in program.segments)


class Step:
    """A captured step of a few nodes, all in one segment unless stated."""

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.x = self.graph.placeholder("x")

    def call(self, target: Any, *args: Any, segment: str = "a") -> fx.Node:
        node = self.graph.call_function(target, args)
        node.meta["segment"] = segment
        return node

    def merged(self, *returned: fx.Node) -> list[Any]:
        """Return what the step returns, after the pass."""
        self.graph.output(list(returned))
        merge_views(self)  # type: ignore[arg-type]
        self.graph.lint()
        return list(self.graph.find_nodes(op="output")[0].args[0])

    @property
    def calls(self) -> list[Any]:
        return [node.target for node in self.graph.nodes if node.op == "call_function"]


def test_pairs_of_transpositions_are_dropped() -> None:
    """Of three in a row, one stays."""
    step = Step()
    value = step.call(torch.neg, step.x)
    once = step.call(TURN, value)
    twice = step.call(TURN, once)
    thrice = step.call(TURN, twice)
    assert step.merged(twice, thrice) == [value, thrice]
    assert thrice.args == (value,)
    assert step.calls == [torch.neg, TURN]


def test_view_of_a_view_reads_its_source() -> None:
    """The first view stays where something else reads it."""
    step = Step()
    first = step.call(VIEW, step.x, [2, 3])
    second = step.call(VIEW, first, [3, 2])
    third = step.call(VIEW, second, [6])
    step.merged(first, third)
    assert third.args == (step.x, [6])
    assert step.calls == [VIEW, VIEW]


def test_views_of_two_segments_stay() -> None:
    """What leaves a segment is stashed under its name and in its shape."""
    step = Step()
    first = step.call(VIEW, step.x, [2, 3])
    second = step.call(VIEW, first, [6], segment="b")
    turned = step.call(TURN, first)
    back = step.call(TURN, turned, segment="b")
    assert step.merged(second, back) == [second, back]
    assert second.args[0] is first
    assert back.args[0] is turned


def test_transposed_twice_is_returned_by_the_segment_that_makes_it() -> None:
    """A result belongs to a segment, so it is not replaced by a value of another one."""
    step = Step()
    value = step.call(torch.neg, step.x)
    back = step.call(TURN, step.call(TURN, value, segment="b"), segment="b")
    assert step.merged(back) == [back]
    assert step.calls == [torch.neg, TURN, TURN]


def test_no_weight_of_a_model_is_transposed_twice() -> None:
    """Autograd does so for the product of each backward pass, and for its gradient."""
    step = captured()
    run_passes(step, ["merge_views"])
    before = Counter(node.target for node in step.graph.nodes)
    step = captured()
    run_passes(step)
    after = Counter(node.target for node in step.graph.nodes)
    assert after[TURN] < before[TURN] / 2
    assert after[VIEW] < before[VIEW]
    assert all(
        after[target] == count for target, count in before.items() if target not in (TURN, VIEW)
    )
    for node in step.graph.find_nodes(op="call_function", target=TURN):
        assert node.args[0].target is not TURN


def test_views_of_transposed_values_keep_the_bits() -> None:
    """A view may see a transposed value only dimension by dimension."""

    class Heads(Regression):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            heads = x.view(-1, 2, 2).transpose(0, 1).view(2, -1, 1, 2).view(2, -1, 2)
            return super().forward(heads.transpose(0, 1).reshape(-1, 4).t().t(), y)

    model, batch = Heads(), random_batches(1, 2)[0]
    results, gradients = run_kernels(compile_model(model, batch, 1), model, batch)
    loss, expected = run_eagerly(model, batch, FP32, 1)
    assert torch.equal(results[0], loss)
    assert all(torch.equal(gradients[name], expected[name]) for name in expected)
