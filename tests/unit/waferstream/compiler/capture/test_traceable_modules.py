"""The traced forms of modules against those of torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from waferstream.compiler.capture.traceable import traceable_forms

Results = list[torch.Tensor]


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
