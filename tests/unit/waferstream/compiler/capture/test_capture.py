"""A captured and compiled step computes what the same step computes in eager mode."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import nn

from tests.support.errors import raises
from tests.support.nightly import nightly
from tests.support.programs.kernels import run_eagerly, run_kernels
from tests.support.roles.local_machine import BF16, FP32, Regression, compile_model, random_batches
from tests.support.runs.tiny_training import GPT, LLAMA, LOADER
from waferstream.compiler.capture.capture import capture
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.program.program import TensorSpec
from waferstream.numerics.precision import StreamPrecision
from waferstream.workload.data import build_source
from waferstream.workload.models import build_model

NUM_MICRO_BATCHES = 3
ONE_LAYER = {"num_hidden_layers": 1}
MIXED = StreamPrecision("bfloat16", "float32")


Batch = dict[str, torch.Tensor]


class Awkward(Regression):
    """A weight used twice, one that is frozen, one that is not used, and a constant buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers[1].weight.requires_grad_(False)
        self.unused = nn.Parameter(torch.ones(3))
        self.mask: torch.Tensor
        self.register_buffer("mask", torch.tensor([1.0, 0.0, 1.0, 1.0]))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return super().forward(x, y) + (self.layers[0](x.to(self.mask)).float() * self.mask).mean()


class TwoPaths(Regression):
    """A module with two paths, and a parameter with two attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.same = self.layers[0]
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.layers[1].weight

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return super().forward(x, y) + self.tied(self.same(x.to(self.tied.weight))).float().mean()


def tokens() -> Batch:
    return build_source({**LOADER, "batch_size": 6}, "test").batch(0)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Batch]]] = {
    "gpt": (lambda: build_model(GPT | ONE_LAYER, 0), tokens),
    "llama": (lambda: build_model(LLAMA | ONE_LAYER, 0), tokens),
    "mlp": (Regression, lambda: random_batches(1, 6)[0]),
    "awkward": (Awkward, lambda: random_batches(1, 6)[0]),
    "two_paths": (TwoPaths, lambda: random_batches(1, 6)[0]),
}


Built = dict[str, tuple[nn.Module, Batch]]


@pytest.fixture(scope="module")
def built() -> Built:
    return {name: (model(), batch()) for name, (model, batch) in MODELS.items()}


@pytest.mark.parametrize("precision", [FP32, MIXED, *nightly(BF16)], ids=["fp32", "mixed", "bf16"])
@pytest.mark.parametrize("name", MODELS)
def test_kernels_compute_the_bits_of_autograd(
    name: str, precision: StreamPrecision, built: Built
) -> None:
    """Loss and every gradient, bit for bit, on a micro-batch that was not captured."""
    model, batch = built[name]
    if name == "awkward" and precision == BF16:
        model.mask = model.mask.bfloat16()
    compiled = compile_model(model, batch, NUM_MICRO_BATCHES, precision=precision)
    micro_batch = {key: tensor[2:4] for key, tensor in batch.items()}
    loss, expected = run_eagerly(model, micro_batch, precision, NUM_MICRO_BATCHES)
    results, gradients = run_kernels(compiled, model, micro_batch)
    assert torch.equal(results[0], loss)
    assert gradients.keys() == expected.keys() == set(compiled.program.trained)
    for parameter, gradient in gradients.items():
        assert torch.equal(gradient, expected[parameter]), parameter


def test_evaluation_program_computes_the_same_loss(built: Built) -> None:
    """Without backward the program has no gradients and the same result."""
    model, batch = built["gpt"]
    compiled = compile_model(model, batch, NUM_MICRO_BATCHES, trains=False)
    micro_batch = {key: tensor[:2] for key, tensor in batch.items()}
    results, gradients = run_kernels(compiled, model, micro_batch)
    assert compiled.program.kind == "eval"
    assert gradients == {}
    assert compiled.program.trained == ()
    assert torch.equal(results[0], run_eagerly(model, micro_batch, FP32, 1)[0])


def test_capture_needs_no_values_and_changes_no_model() -> None:
    """A model on the meta device has no values, and no gradient is left behind."""
    with torch.device("meta"):
        model = Regression(width=1000)
    batch = {name: torch.empty(2, 1000, device="cpu") for name in ("x", "y")}
    compiled = compile_model(model, batch, 1)
    assert compiled.program.parameter["layers.0.weight"].shape == (1000, 1000)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_captured_names_parameters_inputs_and_gradients() -> None:
    """Parameters in registration order as fp32, inputs by name, gradients of what is trained."""
    model = Awkward()
    named = [("a", torch.zeros(2, 4)), ("b", torch.zeros(2, 4))]

    def step(batch: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        loss = model(*batch)
        loss.backward()
        return [loss, loss * 2]

    captured = capture(step, model, named, MIXED)
    assert [spec.name for spec in captured.parameters] == [n for n, _ in model.named_parameters()]
    assert {spec.dtype for spec in captured.parameters} == {"float32"}
    assert captured.inputs == (
        TensorSpec("a", (2, 4), "float32"),
        TensorSpec("b", (2, 4), "float32"),
    )
    assert captured.trained == ("layers.0.weight", "layers.0.bias", "layers.1.bias")
    assert captured.stream_dtype == "bfloat16"
    assert len(captured.results) == 2
    assert list(captured.gradients) == list(captured.trained)
    weights = {name: node.meta["val"].dtype for node, name in captured.weights.items()}
    assert set(weights.values()) == {torch.bfloat16}


@pytest.mark.parametrize("dtype", [torch.uint16, torch.complex64], ids=str)
def test_capture_refuses_unsupported_input_dtypes(dtype: torch.dtype) -> None:
    """Before tracing starts; tokens are often stored as unsigned integers."""
    inputs = [("tokens", torch.zeros(2, 4, dtype=dtype))]
    with raises(ApplianceCompilationError, "input-dtype-unsupported") as caught:
        capture(lambda batch: batch, Regression(), inputs, FP32)
    assert caught.value.value == str(dtype)
    assert "tokens" in (caught.value.where or "")
    assert "int64" in (caught.value.rule or "")
    assert caught.value.remedy


def refusals() -> list[Callable[[torch.Tensor], None]]:
    def vector_loss(loss: torch.Tensor) -> None:
        (loss * torch.ones(2)).backward()

    def own_gradient(loss: torch.Tensor) -> None:
        loss.backward(torch.tensor(2.0))

    def second_order(loss: torch.Tensor) -> None:
        loss.backward(create_graph=True)

    return [vector_loss, own_gradient, second_order]


@pytest.mark.parametrize("backward", refusals(), ids=lambda function: function.__name__)
def test_backward_must_have_a_scalar_loss_only(
    backward: Callable[[torch.Tensor], None],
) -> None:
    """Other calls are not the gradient of a mean over micro-batches."""
    model = Regression()

    def step(batch: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        loss = model(*batch)
        backward(loss)
        return [loss]

    named = [(name, tensor) for name, tensor in random_batches(1, 2)[0].items()]
    with raises(ApplianceCompilationError, "backward-not-of-scalar-loss") as caught:
        capture(step, model, named, FP32)
    assert caught.value.remedy


def test_capture_restores_tensor_backward() -> None:
    """After a capture and after a failed one."""
    before = torch.Tensor.backward
    compile_model(Regression(), random_batches(1, 2)[0], 1)
    with pytest.raises(ApplianceCompilationError):
        compile_model(nn.Linear(3, 3), {"input": torch.zeros(2, 4)}, 1)
    assert torch.Tensor.backward is before


def test_capture_leaves_a_module_with_two_paths_as_it_was() -> None:
    model = TwoPaths()
    before = dict(model.named_parameters())
    compile_model(model, random_batches(1, 6)[0], NUM_MICRO_BATCHES)
    after = dict(model.named_parameters())
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)
    assert model.tied.weight is model.layers[1].weight
