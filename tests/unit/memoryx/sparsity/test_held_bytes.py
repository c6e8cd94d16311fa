"""What weights take is known before a store exists."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest
import torch

from memoryx.sparsity.held_bytes import held_bytes, packable
from memoryx.store.store import WeightStore
from tests.support.roles.local_machine import Regression, compile_model, random_batches
from waferstream.core.optimizer.spec import OptimizerSpec, ParamGroup
from waferstream.core.program.program import Program, TensorSpec
from waferstream.core.sparsity.levels import Constant
from waferstream.core.sparsity.spec import WeightSparsity

HYPER = {
    "lr": 1e-3,
    "betas": (0.9, 0.999),
    "eps": 1e-6,
    "weight_decay": 0.0,
    "correct_bias": True,
    "amsgrad": False,
}
SHAPES = {"wide": (64, 256), "odd": (7, 9), "dense": (32, 32)}


def program() -> Program:
    """Return a program whose parameters have the shapes above."""
    compiled = compile_model(Regression(), random_batches(1, 6)[0], num_micro_batches=3).program
    specs = tuple(TensorSpec(name, shape, "float32") for name, shape in SHAPES.items())
    (segment, *_) = compiled.segments
    trained = replace(segment, weights=tuple(SHAPES), gradients=tuple(SHAPES))
    return replace(compiled, parameters=specs, segments=(trained,))


def adamw(share: float, rule: str = "AdamW") -> OptimizerSpec:
    sparse = tuple(WeightSparsity(n, "static", Constant(value=share)) for n in ("wide", "odd"))
    return OptimizerSpec(rule, (ParamGroup(tuple(SHAPES), HYPER),), sparsity=sparse)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_bytes_are_those_that_a_store_holds(share: float) -> None:
    """Also of weights that are held whole: too few zeros, or no whole blocks."""
    step = program()
    store = WeightStore(step.parameters)
    store.fill({name: torch.ones(shape) for name, shape in SHAPES.items()})
    store.train_with(adamw(share))
    store.make_masks()
    found = held_bytes(step, 8, packable(adamw(share)))
    assert found.total == pytest.approx(store.num_bytes, rel=0.01)
    assert found.masters + found.state == 12 * prod(SHAPES["dense"])
    whole = 4 * sum(map(prod, SHAPES.values()))
    assert found.loading == whole + found.sparse


def test_rule_over_whole_tensors_packs_nothing() -> None:
    assert packable(adamw(0.9, "Lamb")) == packable(None) == ()
    dense = held_bytes(program(), 8)
    elements = sum(map(prod, SHAPES.values()))
    assert (dense.total, dense.sparse, dense.loading) == (12 * elements, 0, 4 * elements)
