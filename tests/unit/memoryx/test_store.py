"""The weight store: masters in one buffer, state for what is trained, updates by group."""

import pytest
import torch

from memoryx.store import WeightStore
from tests.support.plain_sgd import SGD
from wsc.core.errors import ConfigError
from wsc.core.hyper_schedules import LinearLR
from wsc.core.optimizer import OptimizerSpec, ParamGroup
from wsc.core.program import TensorSpec

SPECS = (
    TensorSpec("a", (2, 3), "float32"),
    TensorSpec("b", (4,), "float32"),
    TensorSpec("c", (), "float32"),
)


def group(*names, schedules=None, **hyper):
    return ParamGroup(names, {**SGD, "lr": 0.5, **hyper}, schedules or {})


def store(*groups, rule="SGD"):
    made = WeightStore(SPECS)
    made.train_with(OptimizerSpec(rule, groups))
    return made


def test_masters_are_views_of_one_buffer():
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


def test_filling_copies_and_casts():
    """What the user holds stays the user's; half precision becomes fp32."""
    made = WeightStore(SPECS)
    given = torch.full((4,), 1.5, dtype=torch.bfloat16)
    made.fill({"b": given})
    given.fill_(7)
    assert made.masters["b"].tolist() == [1.5] * 4
    assert (made.masters["a"] == 0).all()


def test_filling_checks_names_and_shapes():
    """A weight of another model is an error, not a broadcast into the wrong place."""
    made = WeightStore(SPECS)
    with pytest.raises(KeyError):
        made.fill({"unknown": torch.zeros(1)})
    with pytest.raises(RuntimeError, match="size of tensor"):
        made.fill({"b": torch.zeros(3)})


def test_state_is_kept_for_what_is_trained_here():
    """Names of other servers and frozen parameters cost no memory."""
    hyper = {"lr": 0.1, "betas": (0.9, 0.99), "weight_decay": 0.0}
    made = store(ParamGroup(("a", "elsewhere"), hyper), rule="Lion")
    assert made.states.keys() == {"a"}
    assert made.states["a"]["exp_avg"].shape == (2, 3)


def test_the_same_optimizer_again_keeps_its_state():
    """A program that is installed again, with other data, goes on; another optimizer begins."""
    made = store(group("a", momentum=0.5))
    made.update({"a": torch.ones(2, 3)}, step=1)
    made.train_with(OptimizerSpec("SGD", (group("a", momentum=0.5),)))
    assert (made.states["a"]["momentum_buffer"] == 1).all()
    made.train_with(OptimizerSpec("SGD", (group("a", momentum=0.25),)))
    assert (made.states["a"]["momentum_buffer"] == 0).all()


def test_an_unknown_rule_is_refused():
    """With the rules that there are."""
    with pytest.raises(ConfigError, match="no optimizer rule 'Adan'"):
        store(group("a"), rule="Adan")


def test_an_update_changes_what_has_a_gradient():
    """Each parameter by the numbers of its own group."""
    made = store(group("a"), group("b", "c", lr=0.25))
    made.update({"a": torch.ones(2, 3), "c": torch.tensor(2.0)}, step=1)
    assert (made.masters["a"] == -0.5).all()
    assert made.masters["c"] == -0.5
    assert (made.masters["b"] == 0).all()


def test_a_schedule_is_read_at_the_steps_before():
    """Step 1 is the first update, so it has the value at 0."""
    line = LinearLR(initial_learning_rate=1.0, end_learning_rate=0.0, total_iters=4)
    made = store(group("c", schedules={"lr": line}))
    seen = []
    for step in (1, 2, 3):
        before = made.masters["c"].item()
        made.update({"c": torch.tensor(1.0)}, step)
        seen.append(before - made.masters["c"].item())
    assert seen == [1.0, 0.75, 0.5]
