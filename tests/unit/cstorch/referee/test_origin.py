"""The first op in which a recorded step and plain PyTorch differ."""

from __future__ import annotations

from collections.abc import Callable

import torch

from cstorch.referee.op_log import OpLog, RanStep
from cstorch.referee.origin import first_difference, origin_of
from cstorch.referee.verdict import LOSS, Distance, Verdict

X = torch.linspace(1, 2, 8)


def ran(function: Callable[[torch.Tensor], torch.Tensor]) -> RanStep:
    """Return the ops of a function, whose result is taken for a gradient."""
    log = OpLog()
    with log:
        result = function(X)
    return RanStep(log.ops, {"weight": result})


def found(
    plain: Callable[[torch.Tensor], torch.Tensor], recorded: Callable[[torch.Tensor], torch.Tensor]
) -> str:
    difference = first_difference(ran(plain), ran(recorded))
    assert difference is not None
    assert "test_origin.py" in difference
    return difference


def test_equal_gradients_have_no_difference() -> None:
    """Whatever else the one or the other computes."""
    one, other = ran(lambda x: (x * 2).exp()), ran(lambda x: x.neg() + (x * 2).exp() + x)
    assert first_difference(one, one) is None
    assert first_difference(one, RanStep(other.ops, one.gradients)) is None


def test_value_that_differs_is_named() -> None:
    text = found(lambda x: (x.exp() * 2).sum(), lambda x: (x.exp() * 3).sum())
    assert "aten.mul has other values" in text


def test_op_of_one_side_is_named_where_other_values_follow() -> None:
    more, fewer = lambda x: x.exp().neg().sum(), lambda x: x.exp().sum()
    assert "aten.neg is not in" in found(more, fewer)
    assert "aten.neg is in the recorded step alone" in found(fewer, more)


def test_op_without_effect_is_passed_over() -> None:
    def checking(x: torch.Tensor) -> torch.Tensor:
        x.log()
        return (x.exp() * 2).sum()

    assert "aten.mul" in found(checking, lambda x: (x.exp() * 3).sum())


def test_loss_of_alike_ops_is_combined_otherwise() -> None:
    """Else gradients or the update are."""
    loss, weight = Distance(LOSS, 0.1, 1e5), Distance("weight", 0.1, 1e5)
    same = ran(lambda x: x.exp().sum())
    of_loss = origin_of(Verdict(1, 1.0, 2.0, (loss, weight)), same, same)
    assert "micro-batches are combined" in of_loss.where
    assert "weight" in origin_of(Verdict(1, 1.0, 1.0, (weight,)), same, same).where
