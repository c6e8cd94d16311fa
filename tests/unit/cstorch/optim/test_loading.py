"""State dicts of optimizers: those of torch's, read and written; what does not fit is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import cstorch
from tests.support.errors import raises
from tests.support.programs.cstorch_program import executor, running_backend
from tests.support.programs.optimized_program import (
    TORCH,
    Program,
    equal,
    one_part,
    plain_steps,
    reloaded,
)
from tests.support.roles.local_machine import Regression
from waferstream.core.errors import ConfigError

OURS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.3, "momentum": 0.1},
    "Adam": {"amsgrad": True, "eps_after_correction": True},
    "AdamW": {"eps_after_correction": True},
    "Adagrad": {"initial_accumulator_value": 0.25},
}
"""Options with which an optimizer is made; those that are loaded win."""


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
        theirs.param_groups[0]["fused"] = True  # as the reference loop's; the state does not say it
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
