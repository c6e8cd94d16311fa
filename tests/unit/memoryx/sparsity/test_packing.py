"""Packed weights: every bit is that of whole ones, in fewer bytes, in memory, flash and files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch

from memoryx.memory.flash import FlashMemory
from memoryx.memory.flash_spec import FlashSpec
from memoryx.memory.memory import Memory
from memoryx.optim.rule import RULES
from memoryx.sparsity.packing import Packing, held_bytes, packable
from memoryx.store.journal import Journal
from memoryx.store.persistence import Persistence
from memoryx.store.store import WeightStore
from tests.support.roles.local_machine import compiled_regression
from waferstream.checkpoint import CLUSTER_STATES
from waferstream.checkpoint.parts import read_parts
from waferstream.checkpoint.reader import Reader
from waferstream.checkpoint.writer import reserve_tensors, write_metadata
from waferstream.core.config import validate
from waferstream.core.optimizer import OptimizerSpec, ParamGroup
from waferstream.core.program.program import Program, TensorSpec
from waferstream.core.sparsity.levels import Constant, Exp
from waferstream.core.sparsity.spec import UpdateSteps, WeightSparsity
from waferstream.core.units import MIB

SHAPE = (24, 40)
SPECS = (TensorSpec("w", SHAPE, "float32"), TensorSpec("dense", (70,), "float32"))
SPARSITY: dict[str, dict[str, Any]] = {
    "static": {"level": Constant(value=0.9)},
    "gmp": {
        "level": Exp(init=0.0, gamma=-0.5, final=0.9),
        "update": UpdateSteps(freq=2, start=2),
    },
    "rigl": {
        "level": Constant(value=0.75),
        "update": UpdateSteps(freq=2),
        "drop_fraction": Constant(value=0.5),
    },
}
OPTIONS = {
    "lr": 0.1,
    "weight_decay": 0.1,
    "momentum": 0.9,
    "nesterov": True,
    "amsgrad": True,
    "centered": True,
    "lr_decay": 0.1,
    "initial_accumulator_value": 0.5,
}
"""Switched on where a rule has them, so that every state and every term takes part."""

HYPER = {
    "lr": 1e-3,
    "betas": (0.9, 0.999),
    "eps": 1e-6,
    "weight_decay": 0.0,
    "correct_bias": True,
    "amsgrad": False,
}
SHAPES = {"wide": (64, 256), "odd": (7, 9), "dense": (32, 32)}


def random(seed: int, shape: tuple[int, ...] = SHAPE) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def optimizer(algorithm: str, rule: str = "AdamW") -> OptimizerSpec:
    arguments = RULES[rule].Arguments
    options = {name: value for name, value in OPTIONS.items() if name in arguments.model_fields}
    hyper = dict(validate(arguments, options, "test"))
    sparsity = WeightSparsity("w", algorithm, **SPARSITY[algorithm])  # type: ignore[arg-type]
    return OptimizerSpec(rule, (ParamGroup(("w", "dense"), hyper),), sparsity=(sparsity,))


def store(
    algorithm: str, rule: str = "AdamW", packs: bool = True, memory: Memory | None = None
) -> WeightStore:
    made = WeightStore(SPECS, memory)
    made.packs = packs
    made.fill({"w": random(0), "dense": torch.ones(70)})
    made.train_with(optimizer(algorithm, rule))
    made.make_masks()
    return made


def step(one: WeightStore, number: int) -> None:
    """Update with a whole gradient, or with its values where they alone would travel."""
    gradient = random(number)
    packing = one.packings.get("w")
    if packing is not None and not one.masks.spec("w").needs_dense_gradient(number):
        gradient = packing.values(packing.pack(gradient))
    one.update({"w": gradient, "dense": torch.full((70,), float(number))}, number)


def contents(one: WeightStore) -> dict[str, torch.Tensor]:
    """Return copies of all whole tensors."""
    found = {state: one.tensors(state) for state in CLUSTER_STATES}
    return {f"{s}.{n}": t.clone() for s, tensors in found.items() for n, t in tensors.items()}


def assert_same(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    different = [name for name in left if not bits(left[name]).equal(bits(right[name]))]
    assert not different


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.int32)


@pytest.mark.parametrize("algorithm", SPARSITY)
@pytest.mark.parametrize("rule", RULES)
def test_packed_updates_have_the_bits_of_whole_ones(rule: str, algorithm: str) -> None:
    """For every rule, while masks change; rules that are not elementwise are not packed."""
    packed, whole = store(algorithm, rule), store(algorithm, rule, packs=False)
    for number in range(1, 6):
        step(packed, number)
        step(whole, number)
        assert_same(contents(packed), contents(whole))
    assert packed.packings.keys() == ({"w"} if RULES[rule].is_elementwise else set())
    assert not whole.packings


@pytest.mark.parametrize("num_values", [0, 1, 64, 70, 960])
def test_packing_returns_what_it_packs(num_values: int) -> None:
    places = torch.randperm(960, generator=torch.Generator().manual_seed(1))[:num_values]
    packing = Packing(SHAPE, places.sort().values.to(torch.int32))
    mask = torch.zeros(960, dtype=torch.bool)
    mask[places] = True
    whole = torch.where(mask.view(SHAPE), random(1), 0.0)
    held = packing.pack(whole)
    assert held.numel() % 64 == 0
    assert not held[num_values:].any()
    assert torch.equal(packing.unpack(held), whole)
    assert torch.equal(packing.pack(packing.values(held)), held)


def test_ninety_percent_zeros_save_three_quarters_of_the_memory() -> None:
    """The memory of whole tensors is free again; all that places values counts."""
    one = store("static")
    step(one, 1)
    whole = 3 * 4 * (24 * 40 + 70)
    unpacked = 3 * 4 * 70
    assert one.num_bytes - unpacked <= 0.25 * (whole - unpacked) + 3 * 64  # alignment


def test_weights_that_grow_dense_are_held_whole() -> None:
    """And those that GMP prunes step by step take less from change to change."""
    one, sizes = store("gmp"), []
    assert not one.packings
    for number in range(1, 9):
        step(one, number)
        sizes.append(one.masters["w"].numel())
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 960
    assert sizes[-1] == one.masters["w"].numel() < 256
    other = optimizer("static")
    one.train_with(OptimizerSpec("AdamW", other.groups))
    assert one.masters["w"].shape == SHAPE
    assert not one.packings


@pytest.mark.parametrize("algorithm", ["gmp", "rigl"])
def test_rollback_returns_another_number_of_values(algorithm: str) -> None:
    one = store(algorithm)
    journal = Journal(one)
    for number in range(1, 7):
        before = contents(one)
        journal.record(number, ["w", "dense"])
        step(one, number)
        journal.rollback(number - 1)
        assert_same(contents(one), before)
        journal.record(number, ["w", "dense"])
        step(one, number)
    again = store(algorithm, packs=False)
    for number in range(1, 7):
        step(again, number)
    assert_same(contents(one), contents(again))


def saved(one: WeightStore, path: Path, *states: str) -> Path:
    persistence = Persistence(one, "wgt-0")
    layout = persistence.layout(states or list(CLUSTER_STATES))
    persistence.save(path, reserve_tensors(path, layout), is_background=False)
    persistence.finish_saving()
    write_metadata(path, {}, read_parts(path, ["wgt-0"]))
    return path


def restored(one: WeightStore, path: Path) -> WeightStore:
    persistence = Persistence(one, "wgt-0")
    for state in CLUSTER_STATES:
        persistence.restore(path, state, strict=True)
    persistence.catch_up()
    return one


def in_dram(_folder: Path) -> Memory | None:
    return None


def in_flash(folder: Path) -> Memory:
    return FlashMemory(FlashSpec(path=folder, resident_bytes=MIB))


@pytest.mark.parametrize("memory", [in_dram, in_flash])
@pytest.mark.parametrize(("packs", "packs_later"), [(True, True), (True, False), (False, True)])
def test_checkpoints_are_read_by_packed_and_whole_stores(
    packs: bool, packs_later: bool, memory: Callable[[Path], Memory | None], tmp_path: Path
) -> None:
    """Whoever wrote them; training continues with the same bits."""
    one = store("rigl", packs=packs, memory=memory(tmp_path))
    for number in (1, 2, 3):
        step(one, number)
    path = saved(one, tmp_path / "checkpoint.mdl")
    other = restored(store("rigl", packs=packs_later, memory=memory(tmp_path)), path)
    assert bool(other.packings) == packs_later
    assert_same(contents(one), contents(other))
    for number in (4, 5):
        step(one, number)
        step(other, number)
    assert_same(contents(one), contents(other))


def test_file_has_values_and_is_read_whole(tmp_path: Path) -> None:
    """Also where a program saves the model alone: its masks are with it."""
    one = store("static")
    for states in (tuple(CLUSTER_STATES), ("model",)):
        path = saved(one, tmp_path / f"{len(states)}.mdl", *states)
        reader = Reader(path)
        reader.verify()
        assert reader.tensors["model.w"].shape == SHAPE
        assert reader.stored_bytes("model.w") == 4 * one.masks["w"].num_kept
        assert torch.equal(torch.from_numpy(reader["model.w"]), one.weights["w"])
        path.unlink()


def test_save_in_the_background_keeps_values_that_change(tmp_path: Path) -> None:
    """A file in flash is let go while masks, and so the memory of values, change."""
    one = store("gmp", memory=in_flash(tmp_path))
    for number in (1, 2, 3, 4):
        step(one, number)
    before, path = contents(one), tmp_path / "checkpoint.mdl"
    persistence = Persistence(one, "wgt-0")
    layout = persistence.layout(list(CLUSTER_STATES))
    persistence.save(path, reserve_tensors(path, layout), is_background=True)
    for number in (5, 6, 7, 8):
        step(one, number)
    persistence.finish_saving()
    write_metadata(path, {}, read_parts(path, ["wgt-0"]))
    other = store("gmp")
    for state in CLUSTER_STATES:
        Persistence(other, "wgt-0").restore(path, state, strict=True)
    assert_same(contents(other), before)


def program() -> Program:
    """Return a program whose parameters have the shapes above."""
    compiled = compiled_regression(6, 3).program
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
