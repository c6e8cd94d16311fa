"""Selection of parameters by name."""

from __future__ import annotations

import torch

from cstorch.sparse.filters import (
    convert_glob_to_regex,
    default_sparse_param_filter,
    make_param_filter,
)

WEIGHT = torch.zeros(2, 2)


def test_globs_select_and_exclude() -> None:
    select = make_param_filter(["*.weight", "!*norm*", lambda _name, p: p.dim() == 1])
    assert select("layer.weight", WEIGHT)
    assert not select("norm.weight", WEIGHT)
    assert not select("layer.bias", WEIGHT)
    assert select("layer.bias", torch.zeros(2))
    assert make_param_filter("*bias")("layer.bias", WEIGHT)


def test_a_pattern_can_be_a_regular_expression() -> None:
    assert convert_glob_to_regex("re:layer[0-9]+").match("layer12.weight")
    assert not convert_glob_to_regex("layer[0-9]").match("layer12")


def test_sparsity_leaves_vectors_and_embeddings_dense() -> None:
    assert default_sparse_param_filter("fc.weight", WEIGHT)
    assert not default_sparse_param_filter("fc.bias", torch.zeros(2))
    assert not default_sparse_param_filter("embedding_layer.weight", WEIGHT)
