"""Softmax, norms, attention, embedding and loss agree with torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from csnode.fabric import kernels
from csnode.fabric.dtypes import Dtype, decode, encode
from csnode.fabric.region import Fabric
from tests.support.errors import raises
from tests.support.timing.fabric import agree, normal, reference
from waferstream.core.errors import ApplianceCompilationError
from waferstream.machine.hardware.fabric import WSE2

RANDOM = np.random.default_rng(5)


ALL_DTYPES = pytest.mark.parametrize("dtype", Dtype)


@ALL_DTYPES
def test_softmax_runs_along_rows(dtype: Dtype) -> None:
    """4 tokens of 24 features on 2 x 6 PEs, including large values."""
    x = 8 * normal(dtype, 4, 24)
    result = kernels.softmax(Fabric(2, 6), x, dtype)
    expected = torch.softmax(reference(decode(encode(x, dtype), dtype)), dim=1)
    agree(result, expected, dtype, roundings=24)


def test_softmax_runs_along_rows_of_many_pes() -> None:
    """On 48 PEs, those at one end are an instruction behind those at the other end."""
    x = normal(Dtype.FP32, 2, 96)
    result = kernels.softmax(Fabric(1, 48), x)
    agree(result, torch.softmax(reference(x), dim=-1), Dtype.FP32, roundings=60)


@ALL_DTYPES
def test_layer_norm_and_rms_norm_agree_with_torch(dtype: Dtype) -> None:
    """4 tokens of 24 features on 2 x 6 PEs."""
    x, scale, shift = normal(dtype, 4, 24), normal(dtype, 24), normal(dtype, 24)
    weights = reference(scale), reference(shift)
    layer = kernels.layer_norm(Fabric(2, 6), x, scale, shift, dtype)
    agree(layer, F.layer_norm(reference(x), (24,), *weights), dtype, roundings=4, scale=4)
    rms = kernels.rms_norm(Fabric(2, 6), x, scale, dtype)
    agree(rms, F.rms_norm(reference(x), (24,), weights[0], 1e-5), dtype, roundings=4, scale=4)


def test_attention_needs_a_square() -> None:
    """Scores and values move along lines of one length."""
    ones = np.ones((8, 8))
    with raises(ApplianceCompilationError, "attention-grid-not-square"):
        kernels.attention(Fabric(2, 4), ones, ones, ones)


@ALL_DTYPES
@pytest.mark.parametrize("side", [1, 2, 4])
def test_attention_of_one_head_agrees_with_torch(dtype: Dtype, side: int) -> None:
    """8 queries, 16 keys, head size 8, on squares of PEs."""
    q, k, v = normal(dtype, 8, 8), normal(dtype, 16, 8), normal(dtype, 16, 8)
    result = kernels.attention(Fabric(side, side), q, k, v, dtype)
    query, key, value = (reference(x)[None, None] for x in (q, k, v))
    expected = F.scaled_dot_product_attention(query, key, value)
    agree(result, expected[0, 0], dtype, roundings=16, scale=3)


@ALL_DTYPES
def test_embedding_copies_rows(dtype: Dtype) -> None:
    """The result has the bits of the table; each token costs at least a set-up."""
    table, tokens = normal(dtype, 10, 12), RANDOM.integers(0, 10, 8)
    result = kernels.embedding(Fabric(2, 3), table, tokens, dtype)
    np.testing.assert_array_equal(result.values, table[tokens])
    assert result.cycles >= 4 * WSE2.vector_setup_cycles


@ALL_DTYPES
def test_cross_entropy_is_the_mean_over_tokens(dtype: Dtype) -> None:
    """8 tokens and 24 classes on 2 x 4 PEs."""
    logits, classes = normal(dtype, 8, 24), RANDOM.integers(0, 24, 8)
    result = kernels.cross_entropy(Fabric(2, 4), logits, classes, dtype)
    expected = F.cross_entropy(reference(logits), torch.from_numpy(classes))
    agree(result, expected, dtype, roundings=8, scale=4)
