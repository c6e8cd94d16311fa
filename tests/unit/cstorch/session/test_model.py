"""Steps of training are counted on by a program that goes on after another one."""

from __future__ import annotations

from pathlib import Path

import torch

import cstorch
from tests.support.programs.cstorch_program import loader, running_backend
from tests.support.programs.optimized_program import Program
from tests.support.roles.local_machine import Regression


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
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        return loss


def test_resumed_program_draws_the_same_random_numbers(tmp_path: Path) -> None:
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
