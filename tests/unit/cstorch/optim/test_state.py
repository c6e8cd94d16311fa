"""Optimizer state through MemoryX: read, written, saved, and taken over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import cstorch
from tests.support.errors import raises
from tests.support.programs.cstorch_program import (
    executor,
    losses,
    model_of,
    running_backend,
    training_step,
)
from tests.support.programs.optimized_program import (
    TORCH,
    Program,
    equal,
    one_part,
    plain_steps,
    reloaded,
)
from tests.support.roles.local_machine import Regression
from waferstream.core.errors import ConfigError, WaferStreamError


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


def _in_place(state: dict[str, torch.Tensor]) -> None:
    state["step"].zero_()


def _replaced(state: dict[str, torch.Tensor]) -> None:
    state["step"] = torch.tensor(7.0)


def _removed(state: dict[str, torch.Tensor]) -> None:
    del state["step"]


@pytest.mark.parametrize("edit", [_in_place, _replaced, _removed])
@pytest.mark.parametrize("is_read", [False, True])
def test_count_of_updates_written_between_steps(
    backend: cstorch.Backend, edit: Callable[[dict[str, torch.Tensor]], None], is_read: bool
) -> None:
    """MemoryX has one count, and torch's optimizer would follow the edit."""
    program = Program(backend)
    program.train(2)
    edit(program.optimizer.state[next(iter(program.model.parameters()))])
    with raises(ConfigError, "state-step-changed") as caught:
        if is_read:
            program.optimizer.state_dict()
        program.train(1)
    assert "test_state.py" in str(caught.value.where) or not is_read


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


def test_state_read_after_the_end_is_refused() -> None:
    """The values ended with the cluster."""
    with running_backend() as backend:
        program = Program(backend)
        program.train(1)
    with raises(WaferStreamError, "weight-read-after-shutdown"):
        program.optimizer.state_dict()["state"][0]["exp_avg"].sum()


def test_model_of_the_backend_is_the_programs(backend: cstorch.Backend) -> None:
    """An optimizer made before the model is compiled has its state, too."""
    model = Regression()
    optimizer = cstorch.optim.AdamW(model.parameters())
    assert "param_names" not in optimizer.state_dict()["param_groups"][0]
    cstorch.compile(model, backend)
    assert optimizer.state_dict()["param_groups"][0]["param_names"][0] == "layers.0.weight"
    assert model_of(backend) is model


def test_state_loaded_before_compile_counts_steps(tmp_path: Path) -> None:
    """Neither the order of loading and compiling nor that of both and the backend matters."""
    path = tmp_path / "c.mdl"
    with running_backend() as backend:
        losses(training_step(backend), executor(3))
        cstorch.save({"model": {}, "optimizer": {}}, path)
    model, found = Regression(), cstorch.load(path)
    optimizer = cstorch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.load_state_dict(found["optimizer"])
    with running_backend() as backend:
        cstorch.compile(model, backend)
        assert backend.global_step == 3


def test_state_of_another_model_counts_no_steps() -> None:
    """A state that was loaded for another model says nothing about this one."""
    other = Regression()
    optimizer = cstorch.optim.SGD(other.parameters(), lr=0.1)
    state = {"state": {i: {"step": torch.tensor(7.0)} for i in range(4)}}
    optimizer.load_state_dict({**state, "param_groups": [{"params": list(range(4)), "lr": 0.1}]})
    with running_backend() as backend:
        cstorch.compile(Regression(), backend)
        assert backend.global_step == 0
