"""The weight store: masters in one buffer, optimizer state, updates, and checkpoints."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from memoryx.optim.rule import RULES
from memoryx.store.persistence import Persistence
from memoryx.store.store import WeightStore
from tests.support.errors import raises
from tests.support.plain_torch.plain_sgd import SGD
from waferstream.checkpoint import CLUSTER_STATES
from waferstream.checkpoint.parts import read_parts
from waferstream.checkpoint.writer import reserve_tensors, write_metadata
from waferstream.core.errors import CheckpointError, ConfigError
from waferstream.core.hyper_schedules.base import HyperSchedule
from waferstream.core.hyper_schedules.decays import ConstantLR, LinearLR
from waferstream.core.optimizer import OptimizerSpec, ParamGroup, WeightAverage
from waferstream.core.program.program import TensorSpec
from waferstream.core.program.stream_plan import assign_servers

SPECS = (
    TensorSpec("a", (2, 3), "float32"),
    TensorSpec("b", (4,), "float32"),
    TensorSpec("c", (), "float32"),
)


def group(
    *names: str, schedules: Mapping[str, HyperSchedule] | None = None, **hyper: Any
) -> ParamGroup:
    return ParamGroup(names, {**SGD, "lr": 0.5, **hyper}, schedules or {})


def store(*groups: ParamGroup, rule: str = "SGD") -> WeightStore:
    made = WeightStore(SPECS)
    made.train_with(OptimizerSpec(rule, groups))
    return made


def test_store_masters_are_views_of_one_buffer() -> None:
    """Zeros at first, in the order and shape of the specs."""
    made = WeightStore(SPECS)
    assert {name: tuple(m.shape) for name, m in made.masters.items()} == {
        "a": (2, 3),
        "b": (4,),
        "c": (),
    }
    storages = {m.untyped_storage().data_ptr() for m in made.masters.values()}
    assert len(storages) == 1
    assert all((m == 0).all() and m.dtype == torch.float32 for m in made.masters.values())


def test_store_fill_copies_and_casts() -> None:
    """What the user holds stays the user's; half precision becomes fp32."""
    made = WeightStore(SPECS)
    given = torch.full((4,), 1.5, dtype=torch.bfloat16)
    made.fill({"b": given})
    given.fill_(7)
    assert made.masters["b"].tolist() == [1.5] * 4
    assert (made.masters["a"] == 0).all()


def test_store_fill_checks_names_and_shapes() -> None:
    """A weight of another model is an error, not a broadcast into the wrong place."""
    made = WeightStore(SPECS)
    with pytest.raises(KeyError):
        made.fill({"unknown": torch.zeros(1)})
    with pytest.raises(RuntimeError, match="size of tensor"):
        made.fill({"b": torch.zeros(3)})


def test_store_states_cover_trained_parameters_only() -> None:
    """Names of other servers and frozen parameters cost no memory."""
    hyper = {"lr": 0.1, "betas": (0.9, 0.99), "weight_decay": 0.0}
    made = store(ParamGroup(("a", "elsewhere"), hyper), rule="Lion")
    assert made.states.keys() == {"a"}
    assert made.states["a"]["exp_avg"].shape == (2, 3)


def test_train_with_same_optimizer_keeps_state() -> None:
    """A program that is installed again goes on, also with other hyper-parameters."""
    made = store(group("a", momentum=0.5))
    made.update({"a": torch.ones(2, 3)}, applied=1)
    made.train_with(OptimizerSpec("SGD", (group("a", momentum=0.5),)))
    assert (made.states["a"]["momentum_buffer"] == 1).all()
    made.train_with(OptimizerSpec("SGD", (group("a", momentum=0.25),)))
    assert (made.states["a"]["momentum_buffer"] == 1).all()


def test_train_with_another_rule_begins() -> None:
    """Its states have other meanings, even under the same names."""
    made = store(group("a", momentum=0.5))
    made.update({"a": torch.ones(2, 3)}, applied=1)
    muon = {"lr": 0.1, "weight_decay": 0.0, "momentum": 0.9, "nesterov": True, "ns_steps": 1}
    made.train_with(OptimizerSpec("Muon", (ParamGroup(("a",), muon),)))
    assert (made.states["a"]["momentum_buffer"] == 0).all()


def test_train_with_adds_states_that_are_missing() -> None:
    """A maximum that is switched on begins at zero; the moments stay."""
    made = store(ParamGroup(("a",), ADAM), rule="Adam")
    made.update({"a": torch.ones(2, 3)}, applied=1)
    kept = made.states["a"]["exp_avg"]
    made.train_with(OptimizerSpec("Adam", (ParamGroup(("a",), {**ADAM, "amsgrad": True}),)))
    assert made.states["a"]["exp_avg"] is kept
    assert (made.states["a"]["max_exp_avg_sq"] == 0).all()


def test_update_counts_the_updates_of_an_earlier_run() -> None:
    """Adam's bias correction goes on: its first step with a loaded state is no first step."""
    one, other = WeightStore(SPECS), WeightStore(SPECS)
    spec = OptimizerSpec("Adam", (ParamGroup(("c",), ADAM),))
    one.train_with(spec)
    for step in (1, 2, 3):
        one.update({"c": torch.tensor(1.0)}, step)
        if step == 2:
            saved = {name: tensor.clone() for name, tensor in one.tensors("optimizer").items()}
            other.fill({"c": one.masters["c"]})
    other.train_with(replace(spec, earlier_updates=2))
    other.fill(saved, "optimizer")
    other.update({"c": torch.tensor(1.0)}, applied=1)
    assert torch.equal(one.masters["c"], other.masters["c"])


def test_train_with_other_schedules_keeps_state() -> None:
    """The new values count from the next update on."""
    lines = [
        LinearLR(initial_learning_rate=1.0, end_learning_rate=end, total_iters=1)
        for end in (0.5, 0.25)
    ]
    before, after = (
        OptimizerSpec("SGD", (group("c", momentum=0.5, schedules={"lr": line}),)) for line in lines
    )
    made = WeightStore(SPECS)
    made.train_with(before)
    made.update({"c": torch.tensor(1.0)}, applied=1)
    made.train_with(after)
    made.update({"c": torch.tensor(1.0)}, applied=2)
    assert made.states["c"]["momentum_buffer"] == 1.5
    assert made.masters["c"] == -1.0 - 0.25 * 1.5


def test_train_with_refuses_an_unknown_rule() -> None:
    """With the rules that there are."""
    with raises(ConfigError, "unknown-optimizer"):
        store(group("a"), rule="Adan")


def test_store_update_changes_parameters_with_gradient() -> None:
    """Each parameter by the numbers of its own group."""
    made = store(group("a"), group("b", "c", lr=0.25))
    made.update({"a": torch.ones(2, 3), "c": torch.tensor(2.0)}, applied=1)
    assert (made.masters["a"] == -0.5).all()
    assert made.masters["c"] == -0.5
    assert (made.masters["b"] == 0).all()


def test_store_update_reads_schedules_at_step_minus_one() -> None:
    """Step 1 is the first update, so it has the value at 0."""
    line = LinearLR(initial_learning_rate=1.0, end_learning_rate=0.0, total_iters=4)
    made = store(group("c", schedules={"lr": line}))
    seen = []
    for step in (1, 2, 3):
        before = made.masters["c"].item()
        made.update({"c": torch.tensor(1.0)}, step)
        seen.append(before - made.masters["c"].item())
    assert seen == [1.0, 0.75, 0.5]


SAVED = tuple(
    TensorSpec(name, shape, "float32")
    for name, shape in [("a.weight", (3, 2)), ("a.bias", (3,)), ("b.weight", (2, 5)), ("s", ())]
)
ADAM = {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False}
UPDATE = OptimizerSpec("Adam", (ParamGroup(tuple(spec.name for spec in SAVED), ADAM),))


def saved_stores(
    num_servers: int = 1,
    seed: int | None = None,
    specs: Sequence[TensorSpec] = SAVED,
    optimizer: OptimizerSpec = UPDATE,
) -> list[WeightStore]:
    """Return the store of each server, trained for one step if there is a ``seed``."""
    owner = assign_servers(specs, num_servers)
    made = []
    for server in range(num_servers):
        store = WeightStore([spec for spec in specs if owner[spec.name] == server])
        store.train_with(optimizer)
        made.append(store)
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        for spec in specs:
            store = made[owner[spec.name]]
            store.fill({spec.name: torch.randn(spec.shape, generator=generator)})
            store.update({spec.name: torch.randn(spec.shape, generator=generator)}, applied=1)
    return made


def contents(made: Sequence[WeightStore]) -> dict[str, torch.Tensor]:
    """Return all tensors of all servers by their names in a checkpoint."""
    masters = {f"model.{n}": t for store in made for n, t in store.masters.items()}
    states = {
        f"optimizer.{n}.{key}": t
        for store in made
        for n, state in store.states.items()
        for key, t in state.items()
    }
    return masters | states


def saved(made: Sequence[WeightStore], path: Path) -> Path:
    servers = {f"wgt-{index}": store for index, store in enumerate(made)}
    for server, store in servers.items():
        persistence = Persistence(store, server)
        offsets = reserve_tensors(path, persistence.layout(list(CLUSTER_STATES)))
        persistence.save(path, offsets, is_background=False)
        persistence.finish_saving()
    write_metadata(path, {"global_step": 1}, read_parts(path, servers))
    return path


def restore(made: Sequence[WeightStore], path: Path, strict: bool = True) -> None:
    for state in CLUSTER_STATES:
        for store in made:
            Persistence(store, "wgt-0").restore(path, state, strict)


@pytest.mark.parametrize("readers", [1, 2, 3])
@pytest.mark.parametrize("writers", [1, 3])
def test_restore_works_across_numbers_of_servers(
    writers: int, readers: int, tmp_path: Path
) -> None:
    """The number of servers is no property of a checkpoint."""
    path = saved(saved_stores(writers, seed=0), tmp_path / "checkpoint.mdl")
    fresh = saved_stores(readers)
    restore(fresh, path)
    expected = contents(saved_stores(1, seed=0))
    found = contents(fresh)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("rule", RULES)
def test_restored_optimizer_continues_like_the_saved_one(rule: str, tmp_path: Path) -> None:
    """The state of every rule survives: the next updates give the same masters, bit for bit."""
    hyper = {**dict(RULES[rule].Arguments()), "lr": 0.1}
    update = OptimizerSpec(rule, (ParamGroup(tuple(spec.name for spec in SAVED), hyper),))
    original, other = (saved_stores(2, seed, optimizer=update) for seed in (0, 1))
    restore(other, saved(original, tmp_path / "checkpoint.mdl"))
    for step in (2, 3):
        for store in (*original, *other):
            store.update({name: m.cos() for name, m in store.masters.items()}, step)
    expected, found = contents(original), contents(other)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_restore_keeps_the_memory_of_the_masters(tmp_path: Path) -> None:
    """Views that others hold stay valid: masters are overwritten, not replaced."""
    path = saved(saved_stores(seed=0), tmp_path / "checkpoint.mdl")
    (store,) = saved_stores()
    before = store.masters["a.weight"].data_ptr()
    restore([store], path)
    assert store.masters["a.weight"].data_ptr() == before


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (TensorSpec("c.weight", (1,), "float32"), "c.weight"),
        (TensorSpec("a.weight", (2, 3), "float32"), "a.weight"),
    ],
    ids=["missing", "other shape"],
)
def test_restore_refuses_a_checkpoint_of_another_model(
    changed: TensorSpec, message: str, tmp_path: Path
) -> None:
    """The tensor is named, and no master has been touched."""
    path = saved(saved_stores(seed=0), tmp_path / "checkpoint.mdl")
    specs = (*(spec for spec in SAVED if spec.name != changed.name), changed)
    (store,) = saved_stores(specs=specs)
    with pytest.raises(CheckpointError) as caught:
        Persistence(store, "wgt-0").restore(path, "model", strict=True)
    assert message in str(caught.value)
    assert all((master == 0).all() for master in store.masters.values())


def test_restore_without_strict_keeps_missing_tensors(tmp_path: Path) -> None:
    """What the file has is taken, what it lacks keeps its initial value."""
    path = saved(saved_stores(seed=0), tmp_path / "checkpoint.mdl")
    (store,) = saved_stores(specs=(*SAVED, TensorSpec("c.weight", (2,), "float32")))
    store.fill({"c.weight": torch.ones(2)})
    Persistence(store, "wgt-0").restore(path, "model", strict=False)
    expected = contents(saved_stores(seed=0))
    assert torch.equal(store.masters["b.weight"], expected["model.b.weight"])
    assert store.masters["c.weight"].tolist() == [1.0, 1.0]


def test_restore_postpones_optimizer_state(tmp_path: Path) -> None:
    """Asked for before a training program is installed, it is read once, as soon as one is."""
    path = saved(saved_stores(seed=0), tmp_path / "checkpoint.mdl")
    store = WeightStore(SAVED)
    persistence = Persistence(store, "wgt-0")
    persistence.restore(path, "optimizer", strict=True)
    store.train_with(UPDATE)
    persistence.catch_up()
    expected = contents(saved_stores(seed=0))["optimizer.a.weight.exp_avg"]
    assert torch.equal(store.states["a.weight"]["exp_avg"], expected)
    store.states["a.weight"]["exp_avg"].zero_()
    persistence.catch_up()
    assert (store.states["a.weight"]["exp_avg"] == 0).all()


def test_averages_follow_the_updates_of_their_sources() -> None:
    """Each with its own decay, in the store of the source; whoever is being saved hears of both."""
    decays = [ConstantLR(learning_rate=decay) for decay in (0.75, 0.5)]
    specs = (TensorSpec("source", (2,), "float32"), TensorSpec("other", (2,), "float32"))
    averages = [TensorSpec(name, (2,), "float32", "source") for name in ("slow", "fast")]
    made = WeightStore([*specs, *averages])
    heard: list[Collection[str]] = []
    made.before_change = heard.append
    made.train_with(
        OptimizerSpec(
            "SGD",
            (group("source", "other"),),
            averages=tuple(
                WeightAverage(name, "source", decay)
                for name, decay in zip(("slow", "fast"), decays, strict=True)
            ),
        )
    )
    made.fill({"slow": torch.tensor([8.0, 0.0])})
    made.update({"source": torch.full((2,), -8.0)}, applied=1)  # to 4
    assert made.masters["slow"].tolist() == [7.0, 1.0]
    assert made.masters["fast"].tolist() == [2.0, 2.0]
    made.update({"other": torch.ones(2)}, applied=1)
    assert made.masters["slow"].tolist() == [7.0, 1.0]
    assert [set(names) for names in heard] == [
        {"slow"},
        {"source", "slow", "fast"},
        {"other"},
    ]
    assert made.states.keys() == {"source", "other"}
