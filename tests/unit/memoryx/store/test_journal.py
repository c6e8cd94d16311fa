"""Before-images: what is taken back, what stays, and that memory is reused."""

import torch

from memoryx.store.journal import Journal
from memoryx.store.store import WeightStore
from tests.support.plain_torch.plain_sgd import SGD
from waferstream.core.optimizer import OptimizerSpec, ParamGroup
from waferstream.core.program.program import TensorSpec

NAMES = ("a", "b")


def store() -> WeightStore:
    made = WeightStore([TensorSpec(name, (3,), "float32") for name in NAMES])
    group = ParamGroup(NAMES, {**SGD, "lr": 1.0, "momentum": 0.5})
    made.train_with(OptimizerSpec("SGD", (group,)))
    return made


def everything(of: WeightStore) -> dict[str, torch.Tensor]:
    both = {**of.tensors("model"), **of.tensors("optimizer")}
    return {name: tensor.clone() for name, tensor in both.items()}


def step(of: WeightStore, journal: Journal, number: int, *names: str) -> None:
    journal.record(number, names)
    of.update({name: torch.full((3,), float(number)) for name in names}, number)


def test_rollback_restores_masters_and_state_of_one_step() -> None:
    """Whether all or some parameters were updated; those of the step before stay updated."""
    for names in (("a",), NAMES):
        mine = store()
        journal = Journal(mine)
        step(mine, journal, 1, *NAMES)
        before = everything(mine)
        step(mine, journal, 2, *names)
        assert not torch.equal(mine.masters["a"], before["a"])
        journal.rollback(1)
        after = everything(mine)
        assert len(after) == 4
        assert all(torch.equal(after[name], before[name]) for name in before)


def test_rollback_to_the_last_step_changes_nothing() -> None:
    """Nor does a second one, or one without any step."""
    mine = store()
    journal = Journal(mine)
    journal.rollback(0)
    step(mine, journal, 1, "a")
    after = everything(mine)
    journal.rollback(1)
    assert all(torch.equal(value, after[name]) for name, value in everything(mine).items())
    journal.rollback(0)
    journal.rollback(0)
    assert torch.equal(mine.masters["a"], torch.zeros(3))


def test_same_step_can_be_recorded_again_after_rollback() -> None:
    """The step runs again, and may be taken back again."""
    mine = store()
    journal = Journal(mine)
    for _ in range(3):
        step(mine, journal, 1, *NAMES)
        journal.rollback(0)
    assert all(torch.equal(value, torch.zeros(3)) for value in everything(mine).values())
