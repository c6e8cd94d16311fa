"""The masks of a store: applied to all that belongs to a weight, journaled, saved and restored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from memoryx.optim.rule import RULES
from memoryx.sparsity.mask import mask_of, mask_words
from memoryx.store.journal import Journal
from memoryx.store.persistence import Persistence
from memoryx.store.store import WeightStore
from tests.support.errors import raises
from waferstream.checkpoint.writer import reserve_tensors, write_metadata
from waferstream.core.config import validate
from waferstream.core.errors import CheckpointError
from waferstream.core.optimizer import OptimizerSpec, ParamGroup
from waferstream.core.program.program import TensorSpec
from waferstream.core.sparsity.levels import Constant
from waferstream.core.sparsity.spec import UpdateSteps, WeightSparsity

SPECS = (TensorSpec("w", (8, 9), "float32"), TensorSpec("dense", (4,), "float32"))


def sparsity(**changes: Any) -> WeightSparsity:
    made = {"name": "w", "algorithm": "static", "level": Constant(value=0.75), **changes}
    return WeightSparsity(**made)


def rigl() -> WeightSparsity:
    half = Constant(value=0.5)
    return sparsity(algorithm="rigl", update=UpdateSteps(freq=2), drop_fraction=half)


def store(*sparse: WeightSparsity, weight: torch.Tensor | None = None) -> WeightStore:
    made = WeightStore(SPECS)
    made.fill({"w": random(0) if weight is None else weight, "dense": torch.ones(4)})
    arguments = RULES["AdamW"].Arguments
    hyper = dict(validate(arguments, {"lr": 0.1, "weight_decay": 0.1}, "test"))
    made.train_with(OptimizerSpec("AdamW", (ParamGroup(("w", "dense"), hyper),), sparsity=sparse))
    return made


def made(*sparse: WeightSparsity) -> WeightStore:
    one = store(*sparse)
    one.make_masks()
    return one


def random(seed: int) -> torch.Tensor:
    return torch.randn(8, 9, generator=torch.Generator().manual_seed(seed))


def step(one: WeightStore, number: int) -> None:
    one.update({"w": random(number), "dense": torch.ones(4)}, number)


def contents(one: WeightStore) -> dict[str, torch.Tensor]:
    words = {"mask": one.masks["w"].integers}
    return {n: t.clone() for n, t in {**one.states["w"], **words, "": one.masters["w"]}.items()}


def test_words_hold_any_shape() -> None:
    for shape in ((), (0,), (1,), (31,), (32,), (5, 13)):
        dense = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.5
        assert torch.equal(mask_of(mask_words(dense).numpy(), shape), dense)


def test_masked_update_is_that_of_the_remaining_weights_alone() -> None:
    """The others, and their moments, are zero; remaining ones have the bits of a dense update."""
    sparse, dense = made(sparsity()), store()
    mask = sparse.masks["w"].dense()
    assert sparse.masks["w"].num_kept == 18
    for number in (1, 2, 3):
        step(sparse, number)
        step(dense, number)
    for key, tensor in {"": sparse.masters["w"], **sparse.states["w"]}.items():
        assert not tensor[~mask].any()
        assert torch.equal(tensor[mask], dense.of("w")[key][mask])
    assert torch.equal(sparse.masters["dense"], dense.masters["dense"])


def test_version_changes_when_the_mask_does() -> None:
    one, versions = made(rigl()), []
    for number in (1, 2, 3, 4):
        before = one.masks["w"].dense()
        step(one, number)
        versions.append(one.masks["w"].version)
        assert torch.equal(before, one.masks["w"].dense()) == (number % 2 == 1)
    assert versions == [1, 2, 2, 3]


def test_gradient_of_a_mask_update_stays_whole_for_the_rule() -> None:
    """Other steps have only the gradients of remaining weights."""
    one = made(rigl())
    for number in (1, 2):
        gradient = random(9)
        pruned = one.pruned({"w": gradient}, number)["w"]
        assert not pruned[~one.masks["w"].dense()].any()
        assert torch.equal(gradient, random(9)) == (number == 2)


def test_filled_weights_are_masked() -> None:
    one = made(sparsity())
    one.fill({"w": torch.ones(8, 9)})
    assert torch.equal(one.masters["w"], one.masks["w"].dense().float())


def test_rollback_takes_back_a_mask() -> None:
    one = made(rigl())
    step(one, 1)
    before, journal = contents(one), Journal(one)
    version = one.masks["w"].version
    journal.record(2, ["w", "dense"])
    step(one, 2)
    assert not torch.equal(contents(one)["mask"], before["mask"])
    journal.rollback(1)
    assert all(torch.equal(now, before[key]) for key, now in contents(one).items())
    assert one.masks["w"].version > version + 1


def saved(one: WeightStore, path: Path) -> Path:
    persistence = Persistence(one, "wgt-0")
    layout = persistence.layout(["sparsity", "model", "optimizer"])
    persistence.save(path, reserve_tensors(path, layout), is_background=False)
    persistence.finish_saving()
    write_metadata(path, {})
    return path


def restored(one: WeightStore, path: Path, *states: str, strict: bool = True) -> WeightStore:
    persistence = Persistence(one, "wgt-0")
    for state in states or ("sparsity", "model", "optimizer"):
        persistence.restore(path, state, strict)
    persistence.catch_up()
    return one


def test_masks_return_from_a_checkpoint(tmp_path: Path) -> None:
    """Also those of weights that have just grown, and are still zero."""
    one = made(rigl())
    step(one, 1)
    step(one, 2)
    path = saved(one, tmp_path / "checkpoint.mdl")
    other = restored(store(rigl(), weight=random(5)), path)
    assert all(torch.equal(now, contents(one)[key]) for key, now in contents(other).items())
    for store_ in (one, other):
        step(store_, 3)
        step(store_, 4)
    assert all(torch.equal(now, contents(one)[key]) for key, now in contents(other).items())


def test_sparse_run_of_a_dense_checkpoint_makes_its_masks(tmp_path: Path) -> None:
    """From the restored weights, and not from those that were there before."""
    path = saved(store(weight=random(3)), tmp_path / "checkpoint.mdl")
    topk = sparsity(init="topk")
    other = restored(store(topk, weight=random(4)), path)
    expected = store(topk, weight=random(3))
    expected.make_masks()
    assert torch.equal(other.masters["w"], expected.masters["w"])


def test_dense_run_of_a_sparse_checkpoint_goes_on_densely(tmp_path: Path) -> None:
    one = made(sparsity())
    other = restored(store(weight=random(4)), saved(one, tmp_path / "checkpoint.mdl"))
    assert torch.equal(other.masters["w"], one.masters["w"])
    step(other, 1)
    assert bool(other.masters["w"].all())


def test_checkpoint_with_another_pattern_is_refused(tmp_path: Path) -> None:
    """Another density, or other weights."""
    path = saved(made(sparsity()), tmp_path / "checkpoint.mdl")
    with raises(CheckpointError, "checkpoint-sparsity-mismatch"):
        restored(store(sparsity(level=Constant(value=0.5))), path)
    with raises(CheckpointError, "checkpoint-sparsity-mismatch"):
        restored(store(sparsity(name="dense")), path)
    new = restored(store(sparsity(level=Constant(value=0.5))), path, "model")
    assert new.masks["w"].num_kept == 36
