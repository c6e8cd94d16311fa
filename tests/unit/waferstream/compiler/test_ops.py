"""Which aten ops have a kernel, and of which kind."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from waferstream.compiler.ops import KIND_OF, RANDOM_OPS, REMEDIES, kind_of_overload
from waferstream.numerics.keyed_random import KERNELS

aten: Any = torch.ops.aten


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        (aten.mm.default, "matmul"),
        (aten.convolution.default, "convolution"),
        (aten.native_batch_norm.default, "norm"),
        (aten.max_pool2d_with_indices.default, "window"),
        (aten.add.Tensor, "elementwise"),
        (aten.transpose.int, "view"),
        (aten.index.Tensor, "gather"),
        (aten.bernoulli.default, "random"),
        (aten.hardswish_.default, "elementwise"),
        (aten.gt_.Scalar, "elementwise"),
        (aten.addmm_.default, "matmul"),
        (aten.rrelu_with_noise_.default, None),
        (aten.linalg_qr.default, None),
        (aten.nonzero.default, None),
        (aten._local_scalar_dense.default, None),
    ],
)
def test_kind_of_overload(op: Any, kind: str | None) -> None:
    """Listed ops have their kind, pointwise ops and views that of torch's tags."""
    assert kind_of_overload(op) == kind


@pytest.mark.parametrize("op", [aten.poisson.default, aten.geometric_.default, aten.random.default])
def test_random_op_without_a_keyed_kernel_has_no_kind(op: Any) -> None:
    """It would draw other numbers on every cluster, even where torch calls it pointwise."""
    assert kind_of_overload(op) is None


def test_every_random_op_has_a_keyed_kernel() -> None:
    """And every keyed kernel is an op."""
    assert KERNELS.keys() == RANDOM_OPS


def test_every_listed_op_exists_in_torch() -> None:
    """A name that torch does not know would never match."""
    assert [name for name in KIND_OF if not hasattr(aten, name)] == []


def test_ops_with_a_remedy_have_no_kernel() -> None:
    """A remedy is what to write instead."""
    assert not REMEDIES.keys() & KIND_OF.keys()
