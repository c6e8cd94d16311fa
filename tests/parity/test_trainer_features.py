"""What a Trainer does beside training, against a plain PyTorch loop in the same run."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

import cstorch
from cstorch import backends
from cstorch.trainer import BestCheckpoint, Callback, EarlyStopping
from tests.support.errors import raises
from waferstream.core.errors import ConfigError, ProgramOrderError

LOCAL = {"runtime": {"kind": "local"}}
STEPS = 6


@pytest.fixture(autouse=True)
def plain_precision() -> Iterator[None]:
    """Compute in fp32 on whole batches, as the plain loop does; end the backend."""
    cstorch.amp.enable_mixed_precision(False)
    backends.csx.performance.micro_batch_size = 8
    yield
    backend = cstorch.current_backend(raise_exception=False)
    if backend is not None:
        backend.shutdown()
    backends.reset()


def loader(seed: int = 0) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(24, 4, generator=generator)
    return DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=8)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def sgd(model: nn.Module, lr: float = 0.05) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, fused=True)


def trainer(model: nn.Module, **options: Any) -> cstorch.Trainer:
    """Return a trainer of a model; settings and arguments by name."""
    arguments = {key: options.pop(key) for key in ("scheduler", "callbacks") if key in options}
    optimizer = options.pop("optimizer", None) or sgd(model)
    options.setdefault("max_steps", STEPS)
    config = cstorch.CSConfig(cluster=LOCAL, **options)  # type: ignore[arg-type]
    return cstorch.Trainer(
        model=model, optimizer=optimizer, config=config, loss_fn=functional.mse_loss, **arguments
    )


Between = Callable[[nn.Module, torch.optim.Optimizer], object]


def plain(
    steps: int = STEPS, before: Between | None = None, after: Between | None = None
) -> nn.Module:
    """Return the model of a plain loop, which calls functions before and after each update."""
    model = net()
    optimizer = sgd(model)
    batches = [batch for _ in range(steps) for batch in loader()][:steps]
    for x, y in batches:
        functional.mse_loss(model(x), y).backward()
        if before is not None:
            before(model, optimizer)
        optimizer.step()
        optimizer.zero_grad()
        if after is not None:
            after(model, optimizer)
    return model


def assert_equal(found: nn.Module, expected: nn.Module) -> None:
    for own, other in zip(found.parameters(), expected.parameters(), strict=True):
        assert torch.equal(own.detach(), other.detach())


def one_cycle(optimizer: torch.optim.Optimizer) -> Any:
    return lr_scheduler.OneCycleLR(optimizer, 0.3, STEPS, cycle_momentum=False)


def test_schedule_of_torch_is_followed() -> None:
    """Its rates are the plain loop's, and so are the counts afterwards."""
    model = net()
    optimizer = sgd(model)
    scheduler = one_cycle(optimizer)
    trainer(model, optimizer=optimizer, scheduler=scheduler).fit(loader())

    expected = net()
    own = sgd(expected)
    cycle = one_cycle(own)
    for x, y in [*loader(), *loader()]:
        functional.mse_loss(expected(x), y).backward()
        own.step()
        own.zero_grad()
        if cycle.last_epoch < STEPS - 1:
            cycle.step()
    assert_equal(model, expected)


class RateByHand(Callback):
    """Sets a learning rate after each step."""

    def on_step(self, trainer: cstorch.Trainer, step: int, loss: float) -> None:
        trainer.optimizer.param_groups[0]["lr"] = 0.1 / (step + 1)


def test_callback_sets_the_learning_rate() -> None:
    model = net()
    trainer(model, callbacks=[RateByHand()]).fit(loader())
    done = itertools.count(2)

    def by_hand(_: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.param_groups[0]["lr"] = 0.1 / next(done)

    assert_equal(model, plain(after=by_hand))


@pytest.mark.parametrize("step", [2, STEPS + 2])
def test_callback_that_clears_the_state_is_refused(step: int) -> None:
    """In the first fit, which torch's optimizer begins without a state, and in the second."""

    class Clears(Callback):
        def on_step(self, trainer: cstorch.Trainer, done: int, loss: float) -> None:
            if done == step:
                trainer.optimizer.state.clear()

    made = trainer(net(), callbacks=[Clears()])
    with raises(ConfigError, "state-changed-in-fit") as caught:
        for _ in range(2):
            made.fit(loader())
    assert __file__ in (caught.value.where or "")


def test_callback_that_loads_a_state_is_refused() -> None:
    """A copy of the optimizer, which is none of MemoryX's, may change as it likes."""

    class Loads(Callback):
        def on_step(self, trainer: cstorch.Trainer, done: int, loss: float) -> None:
            copy.deepcopy(trainer.optimizer).state.clear()
            trainer.optimizer.load_state_dict(trainer.optimizer.state_dict())

    made = trainer(net())
    made.fit(loader())
    made.callbacks = (Loads(),)
    with raises(ConfigError, "state-changed-in-fit"):
        made.fit(loader())


def test_schedule_of_momentum_is_refused_also_after_a_whole_cycle() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = lr_scheduler.CyclicLR(optimizer, 0.01, 0.1, step_size_up=STEPS // 2)
    with raises(ConfigError, "scheduler-of-other-key"):
        trainer(model, optimizer=optimizer, scheduler=scheduler).fit(loader())


CLIPS: Mapping[str, tuple[dict[str, float], Between]] = {
    "norm": (
        {"max_gradient_norm": 0.5},
        lambda model, _: nn.utils.clip_grad_norm_(model.parameters(), 0.5),
    ),
    "value": (
        {"max_gradient_value": 0.05},
        lambda model, _: nn.utils.clip_grad_value_(model.parameters(), 0.05),
    ),
}


@pytest.mark.parametrize("kind", CLIPS)
def test_gradients_are_clipped(kind: str) -> None:
    options, clip = CLIPS[kind]
    model = net()
    trainer(model, **options).fit(loader())
    expected = plain(before=clip)
    for own, other in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(own.detach(), other.detach(), rtol=1e-6, atol=1e-7)


def test_averages_are_those_of_the_plain_loop() -> None:
    model, averages = net(), net()
    made = trainer(model, ema_decay=0.9)
    made.fit(loader())

    def average(own: nn.Module, _: torch.optim.Optimizer) -> None:
        with torch.no_grad():
            for mean, weight in zip(averages.parameters(), own.parameters(), strict=True):
                mean.mul_(0.9).add_(weight, alpha=0.1)

    assert_equal(model, plain(after=average))
    for own, other in zip(made.ema.parameters(), averages.parameters(), strict=True):
        torch.testing.assert_close(own.detach(), other.detach(), rtol=1e-6, atol=1e-7)


def test_trainer_without_averages_says_so() -> None:
    with raises(ConfigError, "missing-key"):
        _ = trainer(net()).ema


class Notes(Callback):
    """Notes what a trainer calls."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def on_step(self, trainer: cstorch.Trainer, step: int, loss: float) -> None:
        self.heard.append(("step", step))

    def on_evaluation(self, trainer: cstorch.Trainer, metrics: Mapping[str, float]) -> None:
        self.heard.append(("evaluation", metrics["val_loss"]))

    def on_checkpoint(self, trainer: cstorch.Trainer, path: Path) -> None:
        self.heard.append(("checkpoint", path.name))


def mean_loss(model: nn.Module, seed: int) -> float:
    with torch.no_grad():
        return sum(float(functional.mse_loss(model(x), y)) for x, y in loader(seed)) / 3


@pytest.mark.parametrize("device", ["csx", "cpu"])
def test_evaluations_come_between_the_steps(device: str) -> None:
    """They have the losses of the plain loop at these steps, and change no weight."""
    model, notes = net(), Notes()
    made = trainer(model, target_device=device, eval_frequency=4, callbacks=[notes], log_steps=2)
    made.fit(loader(), loader(1))
    assert_equal(model, plain())
    kinds = [kind for kind, _ in notes.heard]
    assert kinds == ["step", "step", "evaluation", "step", "evaluation"]
    found = [value for kind, value in notes.heard if kind == "evaluation"]
    assert found == pytest.approx([mean_loss(plain(4), 1), mean_loss(plain(), 1)], rel=1e-6)
    assert made.validate(loader(1))["val_loss"] == found[-1]


def test_plateau_follows_the_evaluations() -> None:
    """A rate falls where the loss of an evaluation has not improved; here none ever does."""
    model = net()
    optimizer = sgd(model)
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=0, threshold=10.0)
    made = trainer(model, optimizer=optimizer, scheduler=plateau, eval_frequency=2)
    made.fit(loader(), loader(1))

    def drop(_: nn.Module, own: torch.optim.Optimizer) -> None:
        counts["steps"] += 1
        if counts["steps"] in (2, 4):
            own.param_groups[0]["lr"] *= 0.1

    counts = {"steps": 0}
    assert_equal(model, plain(after=drop))


def test_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """Bit for bit as without an interruption, with momentum and schedule."""
    whole = net()
    optimizer = sgd(whole)
    scheduler = lr_scheduler.StepLR(optimizer, 2, 0.5)
    notes = Notes()
    made = trainer(
        whole,
        optimizer=optimizer,
        scheduler=scheduler,
        checkpoint_steps=3,
        model_dir=tmp_path,
        callbacks=[notes],
    )
    made.fit(loader())
    assert [name for kind, name in notes.heard if kind == "checkpoint"] == [
        "checkpoint_3.mdl",
        "checkpoint_6.mdl",
    ]
    rest = net()
    optimizer = sgd(rest)
    scheduler = lr_scheduler.StepLR(optimizer, 2, 0.5)
    goes_on = trainer(rest, optimizer=optimizer, scheduler=scheduler, max_steps=3)
    goes_on.load_checkpoint(tmp_path / "checkpoint_3.mdl")
    goes_on.fit(loader())
    assert_equal(rest, whole)
    with raises(ProgramOrderError, "trainer-has-begun"):
        goes_on.load_checkpoint(tmp_path / "checkpoint_3.mdl")


def test_training_stops_early_and_keeps_the_best(tmp_path: Path) -> None:
    model = net()
    best = BestCheckpoint()
    stopping = EarlyStopping(patience=1, min_delta=100.0)  # the first counts, no other does
    made = trainer(model, eval_frequency=2, model_dir=tmp_path, callbacks=[best, stopping])
    assert len(made.fit(loader(), loader(1))) == 4
    assert_equal(model, plain(4))
    saved = cstorch.load(tmp_path / "best.mdl")["model"]
    assert torch.equal(saved["0.weight"], model.get_parameter("0.weight").detach())


def test_dev_run_is_one_batch_and_leaves_nothing(tmp_path: Path) -> None:
    notes = Notes()
    folder = tmp_path / "model_dir"
    made = trainer(
        net(), fast_dev_run=True, checkpoint_steps=1, model_dir=folder, callbacks=[notes]
    )
    assert len(made.fit(loader(), loader(1))) == 1
    assert [kind for kind, _ in notes.heard] == ["step", "evaluation"]
    assert not folder.exists()


def test_epochs_may_be_limited() -> None:
    """Each begins with the first batch."""
    model = net()
    trainer(model, max_steps=None, max_epochs=3, limit_train_batches=2).fit(loader())
    expected = net()
    optimizer = sgd(expected)
    for x, y in [*loader()][:2] * 3:
        functional.mse_loss(expected(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert_equal(model, expected)


@pytest.mark.parametrize("precision", ["bfloat16", "float16", "cbfloat16", "fp32"])
def test_weights_stream_in_the_precision_that_is_asked_for(precision: str) -> None:
    model = net()
    losses = trainer(model, precision=precision, max_steps=12).fit(loader())
    assert losses[9] < losses[0]  # of the same batch
    assert cstorch.amp.get_floating_point_dtype_str() == {"fp32": "float32"}.get(
        precision, precision
    )
    if precision == "fp32":
        assert_equal(model, plain(12))


def test_trainer_simulates_before_and_after_it_trains() -> None:
    """The machine is its own, and the training is the same as without."""
    backends.csx.performance.micro_batch_size = 4
    model = net()
    made = trainer(model, target_device="cs3")
    batch = next(iter(loader()))
    found = made.simulate(batch, num_csx=[1, 2])
    assert [point.num_csx for point in found.points] == [1, 2]
    assert "on CS-3" in str(found)
    assert "SGD" in str(found)
    made.fit(loader())
    with raises(ProgramOrderError, "trainer-has-begun"):
        made.simulate(batch)
    made.shutdown()
    assert made.simulate(batch, num_csx=2).points[-1].num_csx == 2
    other = net()
    trainer(other).fit(loader())
    assert_equal(model, other)


@pytest.mark.parametrize("form", ["path", "text", "mapping", "name", "system"])
def test_cluster_is_stated_in_one_way(form: str, tmp_path: Path) -> None:
    """To a trainer, to a backend and to a simulation."""
    path = tmp_path / "cluster.yaml"
    path.write_text("machine: {system: CS-3}\nruntime: {kind: local}\n")
    given: Any = {
        "path": path,
        "text": str(path),
        "mapping": {"machine": {"system": "CS-3"}},
        "name": "condor-galaxy-3",
        "system": "CS-3",
    }[form]
    assert cstorch.CSConfig(cluster=given).for_cluster().cluster.machine.system.name == "CS-3"
    assert cstorch.ClusterConfig(cluster=given).cluster.machine.system.name == "CS-3"
    x, y = next(iter(loader()))
    model = copy.deepcopy(net())
    found = cstorch.simulate(
        model, {"input": x, "labels": y}, loss_fn=functional.mse_loss, cluster=given
    )
    assert "CS-3" in str(found)


def test_unknown_cluster_is_refused() -> None:
    with raises(ConfigError, "unknown-machine") as caught:
        cstorch.CSConfig(cluster="condor-galaxy-9")  # type: ignore[arg-type]
    assert "condor-galaxy" in str(caught.value.remedy)
