"""Optimizer state through MemoryX: read, written, saved, loaded, and taken over."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import cstorch
from cstorch.trace import TracedStep
from tests.support.cstorch_program import (
    ROWS,
    batches,
    executor,
    loader,
    losses,
    model_of,
    running_backend,
)
from tests.support.errors import raises
from tests.support.local_machine import Regression
from tests.support.tiny_training import Shape
from wsc.core.errors import ConfigError, WaferStreamError

TORCH: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5, fused=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.1, eps=1e-6, amsgrad=True, fused=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1, eps=1e-6, weight_decay=0.1, fused=True),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.1, eps=1e-6),
    "ASGD": lambda p: torch.optim.ASGD(p, lr=0.1, t0=1),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.5),
}
OURS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.3, "momentum": 0.1},
    "Adam": {"amsgrad": True, "eps_after_correction": True},
    "AdamW": {"eps_after_correction": True},
    "Adagrad": {"initial_accumulator_value": 0.25},
}
"""Options with which an optimizer is made; those that are loaded win."""


class Program:
    """A model, an optimizer, and the traced step that trains one with the other."""

    def __init__(self, backend: cstorch.Backend, kind: str = "AdamW", **options: Any) -> None:
        self.model = cstorch.compile(backend.model or Regression(), backend)
        make = getattr(cstorch.optim, kind)
        self.optimizer: Any = make(self.model.parameters(), **options)
        self.step: TracedStep = cstorch.trace(self._step)

    def _step(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = self.model(**batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def train(self, num_steps: int, **options: Any) -> list[float]:
        """Train, and return the losses."""
        return losses(self.step, executor(num_steps, **options))


def plain_steps(
    optimizer: torch.optim.Optimizer, model: torch.nn.Module, first: int, count: int
) -> None:
    """Train a plain model on the batches of some steps, counted from 0."""
    data = list(batches())
    for step in range(first, first + count):
        optimizer.zero_grad()
        model(**data[step % len(data)]).backward()
        optimizer.step()


def reloaded(value: Any) -> Any:
    """Return what torch.load reads after torch.save."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file)


def equal(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> bool:
    """Return whether tensors of the same names have the same bits."""
    return all(torch.equal(found[name], value) for name, value in expected.items())


@contextmanager
def one_part() -> Iterator[cstorch.Backend]:
    """One system computes a whole batch at once, so that a plain loop gives the same bits."""
    with running_backend(Shape(1, servers=2)) as backend:
        cstorch.backends.csx.performance.micro_batch_size = ROWS
        yield backend


def test_state_dict_has_the_trained_values(backend: cstorch.Backend) -> None:
    """Zeros before the first step; then the moments change with every step."""
    program = Program(backend)
    before = program.optimizer.state_dict()["state"][0]
    assert (before["exp_avg"] == 0).all()
    assert before["step"] == 0
    program.train(1)
    first = program.optimizer.state_dict()["state"][0]["exp_avg"].clone()
    assert first.abs().sum() > 0
    program.train(1)
    after = program.optimizer.state_dict()
    assert after["state"][0]["step"] == 2
    assert not torch.equal(after["state"][0]["exp_avg"], first)
    assert after["param_groups"][0]["param_names"][0] == "layers.0.weight"


@pytest.mark.parametrize("kind", TORCH)
def test_state_of_torchs_optimizer_continues_here(kind: str) -> None:
    """Weights and state of a plain loop are loaded; two more steps give its bits."""
    plain = Regression()
    theirs = TORCH[kind](plain.parameters())
    plain_steps(theirs, plain, 0, 3)
    with one_part() as backend:
        program = Program(backend, kind, **OURS.get(kind, {}))
        program.model.load_state_dict(plain.state_dict())
        program.optimizer.load_state_dict(reloaded(theirs.state_dict()))
        program.train(2)
        plain_steps(theirs, plain, 0, 2)
        assert equal(program.model.state_dict(), plain.state_dict())
        expected = theirs.state_dict()["state"]
        for index, state in program.optimizer.state_dict()["state"].items():
            assert equal(
                expected[index], {key: state[key] for key in expected[index] if key in state}
            )


def test_state_dict_continues_in_torchs_optimizer() -> None:
    """A plain loop goes on with what was trained here."""
    with one_part() as backend:
        program = Program(backend, lr=0.1, weight_decay=0.1, eps_after_correction=True)
        program.train(2)
        plain = Regression()
        plain.load_state_dict(program.model.state_dict())
        theirs = TORCH["AdamW"](plain.parameters())
        theirs.load_state_dict(reloaded(program.optimizer.state_dict()))
        program.train(1)
        plain_steps(theirs, plain, 2, 1)
        assert equal(program.model.state_dict(), plain.state_dict())


def test_load_state_dict_between_steps(backend: cstorch.Backend) -> None:
    """The steps called before end with the old state, the next begins with the new one."""
    program = Program(backend)
    program.train(3)
    early = reloaded([program.optimizer.state_dict(), program.model.state_dict()])
    _, expected = program.train(2)
    seen: list[float] = []

    @cstorch.step_closure
    def note(loss: torch.Tensor) -> None:
        seen.append(loss.item())

    for iteration, batch in enumerate(executor(3, activation_steps=3)):
        if iteration == 1:
            program.optimizer.load_state_dict(early[0])
            program.model.load_state_dict(early[1])
        note(program.step(batch))
    assert seen == [expected]
    assert program.optimizer.state_dict()["state"][0]["step"] == 5


@pytest.mark.parametrize("replaces", [False, True], ids=["in place", "replaced"])
def test_state_written_between_steps(replaces: bool) -> None:
    """MemoryX gets the value, as torch's optimizer would."""
    with one_part() as backend:
        program = Program(backend, "SGD", lr=0.1, momentum=0.9)
        program.train(2)
        plain = Regression()
        plain.load_state_dict(program.model.state_dict())
        theirs = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9, fused=True)
        for parameter in program.model.parameters():
            state = program.optimizer.state[parameter]
            if replaces:
                state["momentum_buffer"] = torch.zeros(parameter.shape)
            else:
                state["momentum_buffer"].zero_()
        program.train(1)
        plain_steps(theirs, plain, 2, 1)
        assert equal(program.model.state_dict(), plain.state_dict())


def test_visit_state_replaces_what_the_function_returns(
    backend: cstorch.Backend, tmp_path: Path
) -> None:
    """None leaves a tensor as it is."""
    program = Program(backend, "SGD", lr=0.1, momentum=0.9)
    program.train(1)
    program.optimizer.visit_state(lambda tensor: None if tensor.dim() < 2 else tensor * 0)
    cstorch.save({"model": {}, "optimizer": {}}, tmp_path / "c.mdl")
    weight, bias, *_ = cstorch.load(tmp_path / "c.mdl")["optimizer"]["state"].values()
    assert (weight["momentum_buffer"] == 0).all()
    assert (bias["momentum_buffer"] != 0).any()


def test_second_optimizer_has_a_state_of_its_own(backend: cstorch.Backend) -> None:
    """Each keeps its own when they take turns over the same weights."""
    first = Program(backend, "SGD", lr=0.1, momentum=0.9)
    first.train(1)
    kept = first.optimizer.state_dict()["state"][0]["momentum_buffer"].clone()
    second = Program(backend, "SGD", lr=0.1, momentum=0.9)
    assert (second.optimizer.state_dict()["state"][0]["momentum_buffer"] == 0).all()
    second.train(1)
    assert second.optimizer.state_dict()["state"][0]["step"] == 1
    assert torch.equal(first.optimizer.state_dict()["state"][0]["momentum_buffer"], kept)
    first.train(1)
    assert first.optimizer.state_dict()["state"][0]["step"] == 2


def test_state_survives_a_checkpoint_in_torchs_layout(tmp_path: Path) -> None:
    """Saved by the servers, read lazily, loaded by a user's program: the run goes on."""
    path = tmp_path / "c.mdl"
    with running_backend() as backend:
        program = Program(backend)
        program.train(3)
        states = {"model": program.model, "optimizer": program.optimizer}
        cstorch.save({name: holder.state_dict() for name, holder in states.items()}, path)
        expected = program.train(2)
    with running_backend() as backend:
        program = Program(backend, lr=9.0)
        found = cstorch.load(path)
        program.model.load_state_dict(found["model"])
        program.optimizer.load_state_dict(found["optimizer"])
        assert program.optimizer.state_dict()["state"][3]["step"] == 3
        assert program.train(2) == expected


class Dropped(Regression):
    """A model whose loss depends on keyed random numbers."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.dropout(x, 0.5, True), y)


class Scheduled(Program):
    """A program that also steps a scheduler and a dynamic loss scale."""

    def __init__(self, backend: cstorch.Backend) -> None:
        super().__init__(backend, lr=1.0)
        self.scaler = cstorch.amp.GradScaler("dynamic", init_scale=8.0)
        self.scheduler = cstorch.optim.lr_scheduler.LinearLR(self.optimizer, 0.1, 0.01, 9)

    def _step(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = self.model(**batch)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        return loss


def test_resumed_program_draws_the_random_numbers_of_an_uninterrupted_one(tmp_path: Path) -> None:
    """All states are loaded, as programs for the real machine do; steps go on counting."""
    path, data = tmp_path / "c.mdl", loader()
    with running_backend() as backend:
        cstorch.compile(Dropped(), backend)
        program = Scheduled(backend)
        program.train(3, data=data)
        parts = {name: vars(program)[name] for name in ("model", "optimizer", "scheduler")}
        states = {name: part.state_dict() for name, part in parts.items()}
        scale = program.scaler.state_dict()
        cstorch.save({**states, "scaler": scale, "loader": data.state_dict()}, path)
        expected = program.train(2, data=data)
    with running_backend() as backend:
        cstorch.compile(Dropped(), backend)
        program, data, found = Scheduled(backend), loader(), cstorch.load(path)
        program.scaler.load_state_dict(found["scaler"])
        for name in ("model", "optimizer", "scheduler"):
            vars(program)[name].load_state_dict(found[name])
        data.load_state_dict(found["loader"])
        assert program.train(2, data=data) == expected
        assert backend.global_step == 5


def test_resumed_program_begins_what_it_has_not_loaded_anew(tmp_path: Path) -> None:
    """The loader and the scheduler begin; skipped steps count among the steps before."""
    path = tmp_path / "c.mdl"
    with running_backend() as backend:
        program = Scheduled(backend)
        program.train(2)
        cstorch.save({"model": {}, "optimizer": program.optimizer.state_dict()}, path)
    with running_backend() as backend:
        program, data = Scheduled(backend), loader()
        program.optimizer.load_state_dict(cstorch.load(path)["optimizer"])
        program.scaler.load_state_dict({"num_skipped_steps": 4})
        assert backend.global_step == 6
        program.train(1, data=data)
        assert data.state_dict()["batches"] == 1
        assert program.scheduler.last_epoch == 1
        assert program.optimizer.state_dict()["state"][0]["step"] == 3


def test_state_of_a_restored_checkpoint_is_read(tmp_path: Path) -> None:
    """``Backend.restore`` names it; the state is that of the file before the first step."""
    path = tmp_path / "c.mdl"
    with running_backend() as backend:
        program = Program(backend)
        program.train(3)
        cstorch.save({"model": {}, "optimizer": {}, "global_step": 3}, path)
        expected = reloaded(program.optimizer.state_dict())["state"]
        after = program.train(1)
    with running_backend() as backend:
        program = Program(backend)
        assert (program.optimizer.state_dict()["state"][0]["exp_avg"] == 0).all()
        backend.restore(path)
        found = program.optimizer.state_dict()["state"]
        assert all(equal(found[index], expected[index]) for index in expected)
        assert program.train(1) == after


def test_updates_of_a_state_that_is_not_restored_begin_at_one(tmp_path: Path) -> None:
    """Adam's bias correction goes with the moments, not with the global step."""
    path = tmp_path / "c.mdl"
    with running_backend() as backend:
        Program(backend).train(3)
        cstorch.save({"model": {}, "optimizer": {}, "global_step": 3}, path)
    with running_backend() as backend:
        program = Program(backend)
        backend.restore(path, {"model", "global_step"})
        program.train(1)
        assert (backend.global_step, program.optimizer.state_dict()["state"][0]["step"]) == (4, 1)


def test_save_of_a_state_that_is_not_installed(backend: cstorch.Backend, tmp_path: Path) -> None:
    """What the dict has is written: another optimizer's, or torch's."""
    Program(backend, "SGD", lr=0.1).train(1)
    plain = Regression()
    theirs = TORCH["AdamW"](plain.parameters())
    plain_steps(theirs, plain, 0, 2)
    cstorch.save({"model": {}, "optimizer": theirs.state_dict()}, tmp_path / "c.mdl")
    found, expected = cstorch.load(tmp_path / "c.mdl")["optimizer"], theirs.state_dict()
    assert all(equal(found["state"][index], expected["state"][index]) for index in range(4))
    TORCH["AdamW"](Regression().parameters()).load_state_dict(found)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda saved: saved["param_groups"][0]["params"].pop(), "optimizer-groups-mismatch"),
        (lambda saved: saved["param_groups"][0].update(maximize=True), "optimizer-option-unknown"),
        (lambda saved: saved["state"][0].update(extra=torch.ones(1)), "optimizer-state-mismatch"),
        (lambda saved: saved["state"][0].update(exp_avg=torch.ones(1)), "optimizer-state-mismatch"),
        (lambda saved: saved["state"][0].pop("exp_avg"), "optimizer-state-mismatch"),
        (lambda saved: saved["state"].pop(1), "optimizer-state-mismatch"),
        (lambda saved: saved["state"][0].update(step=torch.tensor(7.0)), "optimizer-steps-differ"),
    ],
)
def test_load_state_dict_refuses_what_does_not_fit(change: Callable[[Any], Any], code: str) -> None:
    """Nothing is changed then."""
    parameters = list(Regression().parameters())
    saved = cstorch.optim.AdamW(parameters, lr=0.5).state_dict()
    change(saved)
    optimizer = cstorch.optim.AdamW(parameters, lr=0.25)
    with raises(ConfigError, code):
        optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_state_read_after_the_end_is_refused() -> None:
    """The values ended with the cluster."""
    with running_backend() as backend:
        program = Program(backend)
        program.train(1)
    with raises(WaferStreamError, "weight-read-after-shutdown"):
        program.optimizer.state_dict()["state"][0]["exp_avg"].sum()


@pytest.mark.parametrize("activation_steps", [1, 4])
def test_hyper_parameters_changed_between_steps(activation_steps: int) -> None:
    """They take effect from the next step on, without another trace or compile."""
    plain = Regression()
    theirs = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.0, fused=True)
    changes: list[dict[str, float]] = [{}, {"lr": 0.3}, {"momentum": 0.9, "weight_decay": 0.1}, {}]
    with one_part() as backend:
        program = Program(backend, "SGD", lr=0.1)
        for step, batch in enumerate(executor(4, activation_steps=activation_steps)):
            program.optimizer.param_groups[0].update(changes[step])
            theirs.param_groups[0].update(changes[step])
            program.step(batch)
            plain_steps(theirs, plain, step, 1)
        assert equal(program.model.state_dict(), plain.state_dict())
        assert program.optimizer.state_dict()["param_groups"][0]["momentum"] == 0.9


def test_wrong_hyper_parameter_between_steps_is_refused(backend: cstorch.Backend) -> None:
    """It would be applied to every weight."""
    program = Program(backend)
    with raises(ConfigError, "out-of-range"):
        for batch in executor(2):
            program.step(batch)
            program.optimizer.param_groups[0]["lr"] = -1.0


def test_model_of_the_backend_is_the_programs(backend: cstorch.Backend) -> None:
    """An optimizer made before the model is compiled has its state, too."""
    model = Regression()
    optimizer = cstorch.optim.AdamW(model.parameters())
    assert "param_names" not in optimizer.state_dict()["param_groups"][0]
    cstorch.compile(model, backend)
    assert optimizer.state_dict()["param_groups"][0]["param_names"][0] == "layers.0.weight"
    assert model_of(backend) is model
