"""Functions of torch that are traced in another form than they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.support.plain_torch.torch_case_steps import check_step
from tests.support.plain_torch.torch_cases import Case, function, integers, modules
from waferstream.compiler.capture.traceable import (
    gaussian_nll_loss,
    traceable_forms,
    without_onednn,
)

Results = list[torch.Tensor]


class Aligned(nn.Module):
    """CTC loss of samples of 6 times and 5 classes, with targets of up to 3 labels."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.loss = nn.CTCLoss(**options)

    def forward(
        self, x: torch.Tensor, targets: torch.Tensor, within: torch.Tensor, length: torch.Tensor
    ) -> torch.Tensor:
        """Return the loss; a sample has at least 2 times."""
        scores = x.log_softmax(-1).transpose(0, 1)
        loss: torch.Tensor = self.loss(scores, targets + 1, within + 2, length)
        return loss


class Selected(Aligned):
    """CTC loss of labels that a mask selects."""

    def forward(
        self, x: torch.Tensor, targets: torch.Tensor, within: torch.Tensor, length: torch.Tensor
    ) -> torch.Tensor:
        """Return the loss of the labels that are large enough."""
        mask = targets + length.unsqueeze(1) > 1
        scores = x.log_softmax(-1).transpose(0, 1)
        labels = (targets + 1).masked_select(mask)
        loss: torch.Tensor = self.loss(scores, labels, within + 2, mask.sum(-1))
        return loss


class Predicted(nn.Module):
    """A loss with a term that counts the predicted classes."""

    def __init__(self) -> None:
        super().__init__()
        self.softmax = nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 9], 2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean of the numbers of the classes and of the squares of ``x``."""
        return self.softmax.predict(x).float().mean() + x.square().mean()


class Converted(nn.Module):
    """A network that converts a part of it in every step, to the dtype that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean square of the scaled input."""
        self.scale = self.scale.to(next(self.scale.parameters()).dtype)
        scaled: torch.Tensor = self.scale(x)
        return scaled.square().mean()


def with_full_lengths(x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the CTC loss of samples without padding."""
    scores, size = x.log_softmax(-1).transpose(0, 1), len(x)
    loss: torch.Tensor = nn.CTCLoss(zero_infinity=True)(scores, targets + 1, [6] * size, [3] * size)
    return loss


ALIGNED = (integers(4, 3), integers(5), integers(4))
REPLACED = [
    Case("CTCLoss()", lambda: Aligned(zero_infinity=True), (6, 5), ALIGNED),
    Case("CTCLoss(masked_select)", lambda: Selected(zero_infinity=True), (6, 5), ALIGNED),
    Case("CTCLoss(sum)", lambda: Aligned(reduction="sum", zero_infinity=True), (6, 5), ALIGNED),
    function("ctc_loss with lengths of the host", with_full_lengths, (6, 5), integers(4, 3)),
    Case("AdaptiveLogSoftmaxWithLoss.predict", Predicted, (8,)),
    Case("Module.to", Converted, (8,)),
    *modules((8,), "AdaptiveLogSoftmaxWithLoss(8, 20, [5, 9], 2.0)", integers(20)),
    *modules((4, 3, 2), "CrossMapLRN2d(3)\nCrossMapLRN2d(2, k=2)"),
]


@pytest.mark.parametrize("options", ["", ", num_layers=2, bidirectional=True, proj_size=3"])
def test_lstm_trains_as_in_a_plain_loop_without_onednn(options: str) -> None:
    """The loop over time has the bits of torch's own."""
    (case,) = modules((3, 5), f"LSTM(5, 4, batch_first=True{options})")
    with without_onednn():
        check_step(case)


@pytest.mark.parametrize("case", REPLACED, ids=lambda case: case.name)
def test_replaced_module_trains_as_in_a_plain_loop(case: Case) -> None:
    """The plain loop has the same forms."""
    with traceable_forms():
        check_step(case)


def test_torch_keeps_its_own_outside_of_a_trace() -> None:
    """Only the block has the other forms."""
    before = nn.CrossMapLRN2d.forward
    with traceable_forms():
        assert nn.CrossMapLRN2d.forward is not before
    assert nn.CrossMapLRN2d.forward is before


def test_parameters_are_replaced_where_torch_replaces_them() -> None:
    """As a program may ask for, instead of a change in place."""
    layer = nn.Linear(2, 2)
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        with traceable_forms():
            layer.to(torch.bfloat16)
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
    assert {each.dtype for each in layer.parameters()} == {torch.bfloat16}


def test_lstm_is_that_of_onednn_but_for_rounding() -> None:
    """Without oneDNN the result is the same function."""
    torch.manual_seed(0)
    layer, x = nn.LSTM(5, 4), torch.randn(3, 2, 5)
    expected = layer(x)[0]
    with without_onednn():
        torch.testing.assert_close(layer(x)[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape", [(4, 3), (4, 1), (4,)])
@pytest.mark.parametrize("full", [True, False])
def test_gaussian_nll_loss_equals_that_of_torch(
    reduction: str, shape: tuple[int, ...], full: bool
) -> None:
    """Variances below ``eps`` count as ``eps``, without a gradient of their own."""
    torch.manual_seed(0)
    x, y, v = torch.randn(4, 3), torch.randn(4, 3), (torch.rand(shape) - 0.1).clamp(min=0)
    found = gaussian_nll_loss(x, y, v, full, 0.2, reduction)
    assert torch.equal(found, functional.gaussian_nll_loss(x, y, v, full, 0.2, reduction))


def test_negative_variance_gives_nan() -> None:
    """A loss that is not finite ends the run; clamping in silence would not."""
    x = torch.ones(3)
    assert gaussian_nll_loss(x, x, torch.tensor([1.0, -1.0, 1.0])).isnan()
    assert gaussian_nll_loss(x, x, 2.0).isfinite()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.int64])
def test_class_numbers_have_any_integer_type(dtype: torch.dtype) -> None:
    """Published programs send them in 32 bits; targets that are probabilities stay as they are."""
    scores, numbers = torch.randn(4, 3), torch.tensor([0, 2, -100, 1])
    expected = functional.cross_entropy(scores, numbers)
    shares = functional.cross_entropy(scores, scores.softmax(-1))
    with traceable_forms():
        assert torch.equal(functional.cross_entropy(scores, numbers.to(dtype)), expected)
        assert torch.equal(nn.NLLLoss()(scores.log_softmax(-1), target=numbers.to(dtype)), expected)
        assert torch.equal(functional.cross_entropy(scores, scores.softmax(-1)), shares)


def compare(compute: Callable[[], Results]) -> None:
    """Compare results inside a trace with those outside."""
    expected = compute()
    with traceable_forms():
        torch.testing.assert_close(compute(), expected, rtol=1e-9, atol=1e-9)


def adaptive() -> nn.AdaptiveLogSoftmaxWithLoss:
    """Return an adaptive softmax of three clusters."""
    torch.manual_seed(0)
    return nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 9], 2.0, head_bias=True, dtype=torch.float64)


@pytest.mark.parametrize("channels", [1, 2, 4, 9])
@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_cross_map_lrn_equals_that_of_torch(size: int, channels: int) -> None:
    """Windows exceed the channels, too."""
    torch.manual_seed(0)
    x = torch.randn(2, channels, 3, 4, dtype=torch.float64, requires_grad=True)
    module, gradient = nn.CrossMapLRN2d(size, 0.3, 0.6, 1.2), torch.randn_like(x)

    def compute() -> Results:
        result: torch.Tensor = module(x)
        return [result, *torch.autograd.grad(result, x, gradient)]

    compare(compute)


def test_cross_map_lrn_of_size_1_has_no_gradient() -> None:
    """It is that way in torch, too."""
    x = torch.ones(2, 3, 4, 5, requires_grad=True)
    with traceable_forms():
        result = nn.CrossMapLRN2d(1)(x)
    torch.testing.assert_close(result, nn.CrossMapLRN2d(1)(x))
    with pytest.raises(ValueError, match="size 1"):
        result.sum().backward()


def test_cross_map_lrn_of_other_dimensions_is_refused() -> None:
    """It takes batches of images."""
    with traceable_forms(), pytest.raises(ValueError, match="4 dimensions"):
        nn.CrossMapLRN2d(2)(torch.ones(2, 3, 4))


@pytest.mark.parametrize("num_rows", [40, 3])
def test_adaptive_softmax_equals_that_of_torch(num_rows: int) -> None:
    """Gradients of a cluster without targets are zero, where torch has none."""
    module, x = adaptive(), torch.randn(num_rows, 8, dtype=torch.float64, requires_grad=True)
    target = torch.randint(0, 20 if num_rows > 3 else 5, (num_rows,))

    def compute() -> Results:
        output, loss = module(x, target)
        leaves = [x, *module.parameters()]
        gradients = torch.autograd.grad(
            loss + output.square().sum(), leaves, materialize_grads=True
        )
        return [output, loss, *gradients, module.predict(x)]

    compare(compute)


def test_adaptive_softmax_takes_a_sample_without_a_batch() -> None:
    """Its target is a scalar."""
    module, x = adaptive(), torch.randn(8, dtype=torch.float64)
    compare(lambda: list(module(x, torch.tensor(7))))


@pytest.mark.parametrize("wrong", [-1, 20])
def test_target_that_is_no_class_gives_nan(wrong: int) -> None:
    """A loss that is not finite ends the run."""
    with traceable_forms():
        output, loss = adaptive()(torch.ones(2, 8, dtype=torch.float64), torch.tensor([3, wrong]))
    assert output.isnan().tolist() == [False, True]
    assert loss.isnan()


def test_shapes_of_adaptive_softmax_that_do_not_fit_are_refused() -> None:
    """One target would hold for all rows otherwise."""
    with traceable_forms(), pytest.raises(ValueError, match="must have the shapes"):
        adaptive()(torch.ones(2, 8), torch.tensor([1]))
