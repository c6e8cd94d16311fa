"""The first op in which a recorded step and plain PyTorch differ."""

from __future__ import annotations

from collections.abc import Callable

import torch

from cstorch.referee.op_log import LoggedOp, OpLog
from cstorch.referee.origin import first_difference, origin_of
from cstorch.referee.verdict import LOSS, Distance, Verdict

X = torch.linspace(1, 2, 8)


def ops(function: Callable[[torch.Tensor], object]) -> list[LoggedOp]:
    log = OpLog()
    with log:
        function(X)
    return log.ops


def test_equal_ops_have_no_difference() -> None:
    assert first_difference(ops(lambda x: (x * 2).exp()), ops(lambda x: (x * 2).exp())) is None


def test_value_that_differs_is_named() -> None:
    found = first_difference(ops(lambda x: (x.exp() * 2).sum()), ops(lambda x: (x.exp() * 3).sum()))
    assert found is not None
    assert "test_origin.py" in found
    assert "aten.mul has other values" in found


def test_op_of_one_side_is_named() -> None:
    more, fewer = ops(lambda x: x.exp().neg().sum()), ops(lambda x: x.exp().sum())
    assert "aten.neg is not in" in str(first_difference(more, fewer))
    assert "aten.neg is in the recorded step alone" in str(first_difference(fewer, more))


def test_loss_of_alike_ops_is_combined_otherwise() -> None:
    """Else gradients or the update are."""
    loss, weight = Distance(LOSS, 0.1, 1e5), Distance("weight", 0.1, 1e5)
    same = ops(lambda x: x.exp().sum())
    assert "combined" in origin_of(Verdict(1, 1.0, 2.0, (loss, weight)), same, same).where
    assert "weight" in origin_of(Verdict(1, 1.0, 1.0, (weight,)), same, same).where
