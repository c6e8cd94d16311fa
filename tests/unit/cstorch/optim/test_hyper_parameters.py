"""Hyper-parameters that a user changes between steps."""

from __future__ import annotations

import pytest
import torch

import cstorch
from tests.support.errors import raises
from tests.support.programs.cstorch_program import executor
from tests.support.programs.optimized_program import Program, equal, one_part, plain_steps
from tests.support.roles.local_machine import Regression
from waferstream.core.errors import ConfigError


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
