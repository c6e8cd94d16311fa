"""Masters and optimizer state go to a checkpoint file and come back bit for bit."""

import pytest
import torch

from memoryx.persistence import Persistence
from memoryx.store import WeightStore
from wsc.checkpoint import CLUSTER_STATES
from wsc.checkpoint.writer import write_metadata
from wsc.core.errors import CheckpointError
from wsc.core.optimizer import OptimizerSpec, ParamGroup
from wsc.core.program import TensorSpec, assign_servers

SPECS = tuple(
    TensorSpec(name, shape, "float32")
    for name, shape in [("a.weight", (3, 2)), ("a.bias", (3,)), ("b.weight", (2, 5)), ("s", ())]
)
ADAM = {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False}
UPDATE = OptimizerSpec("Adam", (ParamGroup(tuple(spec.name for spec in SPECS), ADAM),))


def stores(num_servers=1, seed=None, specs=SPECS):
    """The store of every server; with a ``seed`` trained for a step on random gradients."""
    owner = assign_servers(specs, num_servers)
    made = []
    for server in range(num_servers):
        store = WeightStore([spec for spec in specs if owner[spec.name] == server])
        store.train_with(UPDATE)
        made.append(store)
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        for spec in specs:
            store = made[owner[spec.name]]
            store.fill({spec.name: torch.randn(spec.shape, generator=generator)})
            store.update({spec.name: torch.randn(spec.shape, generator=generator)}, step=1)
    return made


def contents(made):
    """Every tensor of all servers by its name in a checkpoint."""
    masters = {f"model.{n}": t for store in made for n, t in store.masters.items()}
    states = {
        f"optimizer.{n}.{key}": t
        for store in made
        for n, state in store.states.items()
        for key, t in state.items()
    }
    return masters | states


def saved(made, path):
    for state in CLUSTER_STATES:
        for store in made:
            Persistence(store).save(path, state)
    write_metadata(path, {"global_step": 1})
    return path


def restore(made, path, strict=True):
    for state in CLUSTER_STATES:
        for store in made:
            Persistence(store).restore(path, state, strict)


@pytest.mark.parametrize("readers", [1, 2, 3])
@pytest.mark.parametrize("writers", [1, 3])
def test_any_servers_read_what_any_servers_wrote(writers, readers, tmp_path):
    """The number of servers is no property of a checkpoint."""
    path = saved(stores(writers, seed=0), tmp_path / "checkpoint.mdl")
    fresh = stores(readers)
    restore(fresh, path)
    expected = contents(stores(1, seed=0))
    found = contents(fresh)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_restoring_goes_into_the_same_memory(tmp_path):
    """Views that others hold stay valid: masters are overwritten, not replaced."""
    path = saved(stores(seed=0), tmp_path / "checkpoint.mdl")
    (store,) = stores()
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
def test_a_checkpoint_of_another_model_is_refused(changed, message, tmp_path):
    """The tensor is named, and no master has been touched."""
    path = saved(stores(seed=0), tmp_path / "checkpoint.mdl")
    specs = (*(spec for spec in SPECS if spec.name != changed.name), changed)
    (store,) = stores(specs=specs)
    with pytest.raises(CheckpointError, match=message):
        Persistence(store).restore(path, "model", strict=True)
    assert all((master == 0).all() for master in store.masters.values())


def test_without_strict_the_rest_stays_as_it_is(tmp_path):
    """What the file has is taken, what it lacks keeps its initial value."""
    path = saved(stores(seed=0), tmp_path / "checkpoint.mdl")
    (store,) = stores(specs=(*SPECS, TensorSpec("c.weight", (2,), "float32")))
    store.fill({"c.weight": torch.ones(2)})
    Persistence(store).restore(path, "model", strict=False)
    expected = contents(stores(seed=0))
    assert torch.equal(store.masters["b.weight"], expected["model.b.weight"])
    assert store.masters["c.weight"].tolist() == [1.0, 1.0]


def test_optimizer_state_waits_for_the_optimizer(tmp_path):
    """Asked for before a training program is installed, it is read once, as soon as one is."""
    path = saved(stores(seed=0), tmp_path / "checkpoint.mdl")
    store = WeightStore(SPECS)
    persistence = Persistence(store)
    persistence.restore(path, "optimizer", strict=True)
    store.train_with(UPDATE)
    persistence.catch_up()
    expected = contents(stores(seed=0))["optimizer.a.weight.exp_avg"]
    assert torch.equal(store.states["a.weight"]["exp_avg"], expected)
    store.states["a.weight"]["exp_avg"].zero_()
    persistence.catch_up()
    assert (store.states["a.weight"]["exp_avg"] == 0).all()
