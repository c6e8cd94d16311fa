"""Autocast: which functions cast, to which type, and gradients through the casts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.support.errors import raises
from tests.support.programs.kernels import run_eagerly, run_kernels
from tests.support.roles.local_machine import BF16, FP32, Regression, compile_model, random_batches
from waferstream.compiler.capture.autocast import FAMILY_OF, autocast
from waferstream.core.errors import ApplianceCompilationError
from waferstream.numerics.precision import StreamPrecision

MIXED = StreamPrecision("bfloat16", "float32")
FP16 = StreamPrecision("float16", "float16")
FASTEST = StreamPrecision("bfloat16", "bfloat16", softmax_in_half=True)

single = torch.ones(2, 4, 4)
half = single.bfloat16()
weight = half[0]

PRODUCTS: dict[str, Callable[[], torch.Tensor]] = {
    "linear": lambda: F.linear(single, weight, weight[0]),
    "matmul": lambda: single @ half,
    "rmatmul": lambda: half.matmul(single),
    "bmm": lambda: torch.bmm(single, half),
    "einsum": lambda: torch.einsum("bij,bjk->bik", single, half),
    "conv": lambda: F.conv1d(single, half),
    "attention": lambda: F.scaled_dot_product_attention(half, half, half, single),
    "keyword": lambda: F.linear(input=single, weight=weight),
    "lstm": lambda: nn.LSTM(4, 4).bfloat16()(single)[0],
    "gru": lambda: nn.GRU(4, 4, num_layers=2, bidirectional=True).bfloat16()(single)[0],
    "rnn": lambda: nn.RNN(4, 4).bfloat16()(single)[0],
    "rnn of relu": lambda: nn.RNN(4, 4, nonlinearity="relu").bfloat16()(single)[0],
    "lstm cell": lambda: nn.LSTMCell(4, 4).bfloat16()(single[0])[0],
    "gru cell": lambda: nn.GRUCell(4, 4).bfloat16()(single[0]),
    "rnn cell": lambda: nn.RNNCell(4, 4).bfloat16()(single[0]),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("precision", [BF16, MIXED, FASTEST], ids=["1", "0", "2"])
def test_product_of_two_types_has_the_compute_type(name: str, precision: StreamPrecision) -> None:
    """The half type at levels 1 and 2, fp32 at level 0."""
    with autocast(precision):
        assert PRODUCTS[name]().dtype == precision.compute_dtype


def test_product_of_one_type_keeps_it() -> None:
    """A model that casts explicitly gets what it asks for, and float64 is never cast."""
    with autocast(BF16):
        assert (single @ single).dtype == torch.float32
        assert (single.half() @ single.half()).dtype == torch.float16
        assert (single.double() @ single.double()).dtype == torch.float64


def test_multi_head_attention_casts_its_input() -> None:
    """Also the functions inside it compute in the half type."""
    attention = nn.MultiheadAttention(4, 2, batch_first=True).bfloat16()
    with autocast(BF16):
        output, _ = attention(single, single, single)
    assert output.dtype == torch.bfloat16


@pytest.mark.parametrize(
    "loss",
    [
        lambda: F.cross_entropy(half[0], torch.arange(4)),
        lambda: F.mse_loss(half, half * 2),
        lambda: nn.BCEWithLogitsLoss()(half, half),
        lambda: F.nll_loss(half[0], torch.arange(4)),
    ],
)
@pytest.mark.parametrize("precision", [BF16, FASTEST], ids=["1", "2"])
def test_losses_compute_in_fp32(
    loss: Callable[[], torch.Tensor], precision: StreamPrecision
) -> None:
    """At every precision level."""
    with autocast(precision):
        assert loss().dtype == torch.float32


@pytest.mark.parametrize(("precision", "dtype"), [(BF16, torch.float32), (FASTEST, half.dtype)])
def test_softmax_computes_in_fp32_below_level_2(
    precision: StreamPrecision, dtype: torch.dtype
) -> None:
    """As a function, a method, a module and an op of torch.special."""
    with autocast(precision):
        assert F.softmax(half, -1).dtype == dtype
        assert half.log_softmax(-1).dtype == dtype
        assert nn.Softmax(-1)(half).dtype == dtype
        assert torch.special.softmax(half, -1).dtype == dtype
        assert F.softmax(half, -1, dtype=torch.float64).dtype == torch.float64


def test_norm_takes_the_type_of_its_input() -> None:
    """Weights are cast to a wider input; a half input stays half."""
    with autocast(BF16):
        for x in (single, half):
            assert F.layer_norm(x, (4,), weight[0], weight[0]).dtype == x.dtype
            assert F.rms_norm(x, (4,), weight[0]).dtype == x.dtype
            assert F.group_norm(x, 2, weight[0], weight[0]).dtype == x.dtype


@pytest.mark.parametrize("precision", [BF16, MIXED, FP16], ids=["1", "0", "float16"])
def test_batch_norm_with_fp32_statistics_trains(precision: StreamPrecision) -> None:
    """Running statistics stay fp32 beside half weights, and the result has the input's type."""
    dtype = precision.compute_dtype
    norm = nn.BatchNorm1d(4).to(dtype)
    norm.running_mean, norm.running_var = torch.zeros(4), torch.ones(4)
    with autocast(precision):
        result = norm(single[0].to(dtype).requires_grad_())
    assert result.dtype == dtype
    result.float().square().sum().backward()
    assert norm.running_mean.dtype == torch.float32
    assert norm.running_mean.abs().sum() > 0


def test_other_functions_are_unchanged() -> None:
    """Torch promotes; integers are no operands to cast."""
    with autocast(BF16):
        assert (half + single).dtype == torch.float32
        assert F.gelu(half).dtype == half.dtype
        assert F.embedding(torch.tensor([1]), weight).dtype == half.dtype


def test_fp32_training_casts_nothing() -> None:
    """With mixed precision off every function is torch's."""
    with autocast(FP32):
        assert F.softmax(half, -1).dtype == half.dtype


def test_every_function_of_the_table_exists() -> None:
    """A misspelt name would never cast."""
    places = (F, torch, torch.Tensor, torch.linalg)
    missing = [name for name in FAMILY_OF if not any(hasattr(place, name) for place in places)]
    assert missing == []


class FloatBatch(Regression):
    """A model that casts nothing itself: norm, products, softmax and loss on an fp32 batch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hidden = self.layers[1](torch.tanh(self.layers[0](self.norm(x))))
        return F.mse_loss(
            hidden.softmax(-1)[:, :, None] @ hidden[:, None], y[:, :, None] @ y[:, None]
        )


@pytest.mark.parametrize("precision", [BF16, FP16, MIXED, FASTEST], ids=["1", "1h", "0", "2"])
def test_fp32_batch_gives_the_bits_of_the_plain_loop(precision: StreamPrecision) -> None:
    """Loss and gradients of the captured step equal those of autograd under autocast."""
    model, batch = FloatBatch(), random_batches(1, 6)[0]
    compiled = compile_model(model, batch, 3, precision=precision)
    micro_batch = {name: tensor[2:4] for name, tensor in batch.items()}
    loss, expected = run_eagerly(model, micro_batch, precision, 3)
    results, gradients = run_kernels(compiled, model, micro_batch)
    assert torch.equal(results[0], loss)
    assert gradients.keys() == expected.keys()
    assert all(torch.equal(gradients[name], expected[name]) for name in expected)


def test_product_with_float64_is_refused_when_compiled() -> None:
    """It would fail on the node, where shapes no longer say why."""
    batch = {name: tensor.double() for name, tensor in random_batches(1, 4)[0].items()}
    with raises(ApplianceCompilationError, "product-of-two-types") as caught:
        compile_model(FloatBatch(), batch, 2, precision=BF16)
    assert "torch.float64" in (caught.value.value or "")
    assert __file__ in (caught.value.where or "")
