"""``waferstream exec`` on a trainer in the shape of the vendor's Model Zoo: hooks, state, resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from waferstream.checkpoint.reader import Reader
from waferstream.cli.main import main

DATA = """
import numpy as np
import torch

import cerebras.pytorch as cstorch
from cerebras.pytorch.distributed import get_worker_state

LENGTH = 8


class Rows(torch.utils.data.Dataset):
    def __getitem__(self, index):
        row = (7 * index + 3 * np.arange(LENGTH + 1)) % 16
        return {"tokens": row[:-1].astype(np.int32), "labels": row[1:].astype(np.int32)}

    def __len__(self):
        return 32


class Loader(torch.utils.data.DataLoader):
    def state_dict(self):
        return {"samples_streamed": get_worker_state().samples_streamed}

    def load_state_dict(self, state_dict, strict=True):
        self.batch_sampler.set_state(state_dict["samples_streamed"])

    def aggregate_state_dict(self, worker_states):
        total = sum(state["samples_streamed"] for state in worker_states)
        return {"samples_streamed": total, "version": 1}

    def deaggregate_state_dict(self, aggregated_state_dict, strict=True):
        return aggregated_state_dict


def make_loader(batch_size):
    rows = Rows()
    sampler = cstorch.utils.data.DistributedSampler(
        rows, shuffle=True, seed=5, shard=True, batch_size=batch_size, drop_last=True
    )
    return Loader(rows, batch_sampler=sampler)
"""

PROGRAM = """
import argparse
import json
from pathlib import Path

import torch
from data import make_loader

import cerebras.pytorch as cstorch
from cerebras.appliance.errors import ApplianceNanError
from cerebras.appliance.log import ClassLogger, named_class_logger
from cerebras.pytorch.metrics import AccuracyMetric
from cerebras.pytorch.utils.nest import visit_torch_tensors


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(16, 8)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(2))
        self.head = torch.nn.Linear(8, 16, bias=False)
        self.head.weight = self.table.weight
        self.accuracy = AccuracyMetric(name="eval/accuracy")

    def forward(self, batch):
        hidden = self.table(batch["tokens"])
        for layer in self.layers:
            hidden = hidden + torch.nn.functional.gelu(layer(hidden))
        logits = self.head(hidden)
        if not self.training:
            self.accuracy(labels=batch["labels"], predictions=logits.argmax(-1).int())
        labels = batch["labels"].view(-1).long()
        return {"loss": torch.nn.functional.cross_entropy(logits.view(-1, 16).float(), labels)}


class Precision:
    def setup(self, trainer):
        cstorch.amp.set_half_dtype("cbfloat16")
        self.scaler = cstorch.amp.GradScaler(loss_scale="dynamic", init_scale=2.0**12)

    def on_before_optimizer_step(self, trainer):
        self.scaler.unscale_(trainer.optimizer)

    def on_step_end(self, trainer):
        trainer.log(loss_scale=self.scaler.get_scale())
        self.check(self.scaler.get_scale(), self.scaler.get_non_clamped_scale())

    @cstorch.step_closure
    def check(self, scale, unclamped):
        if unclamped < scale:
            raise ApplianceNanError("the loss scale does not recover")

    def on_save(self, trainer, state):
        state["grad_scaler"] = self.scaler.state_dict()

    def on_load(self, trainer, state):
        self.scaler.load_state_dict(state["grad_scaler"])


class Norms:
    def on_before_backward(self, trainer):
        with cstorch.name_scope("params_norm"):
            total = torch.tensor(0.0).to(trainer.model.device)
            for _, parameter in trainer.model.named_parameters():
                total += torch.pow(torch.norm(parameter), 2.0)
            trainer.log(weights=torch.sqrt(total))

    def on_before_optimizer_step(self, trainer):
        with cstorch.name_scope("grad_norm"):
            norms = {n: torch.norm(p.grad.float()) for n, p in trainer.model.named_parameters()}
            trainer.log(**{f"gradient/{name}": norm for name, norm in norms.items()})


class States:
    def on_save(self, trainer, state):
        state |= {
            "model": trainer.model.state_dict(),
            "optimizer": trainer.optimizer.state_dict(),
            "schedulers": [scheduler.state_dict() for scheduler in trainer.schedulers],
            "dataloader": trainer.loader.state_dict(),
            "global_step": trainer.backend_step(),
        }

    def on_load(self, trainer, state):
        trainer.model.load_state_dict(state["model"])
        trainer.optimizer.load_state_dict(state["optimizer"])
        for scheduler, own in zip(trainer.schedulers, state["schedulers"]):
            scheduler.load_state_dict(own)
        trainer.loader.load_state_dict(state["dataloader"])
        trainer.first_step = state["global_step"]


@named_class_logger("Trainer")
class Trainer(ClassLogger):
    def __init__(self, folder):
        self.folder, self.first_step, self.logged = folder, 0, []
        self.callbacks = [Precision(), Norms(), States()]
        self.backend = cstorch.backend("CSX", artifact_dir=folder / "artifacts")
        self.call("setup")
        torch.manual_seed(0)
        with self.backend.device:
            self.model = Net()
        self.compiled = cstorch.compile(self.model, self.backend)
        optim = cstorch.optim
        self.optimizer = optim.AdamW(self.model.parameters(), lr=0.1, weight_decay=0.01)
        self.schedulers = [
            optim.lr_scheduler.LinearLR(
                self.optimizer,
                initial_learning_rate=0.05,
                end_learning_rate=0.01,
                total_iters=8,
            )
        ]
        self.loader = cstorch.utils.data.DataLoader(make_loader, 8)

    def call(self, hook, *args):
        for callback in self.callbacks:
            getattr(callback, hook, lambda *_: None)(self, *args)

    def log(self, **metrics):
        for value in metrics.values():
            assert all(torch.is_tensor(x) for _, x in visit_torch_tensors([value]))
        self.log_later(metrics)

    @cstorch.step_closure
    def log_later(self, metrics):
        step = self.backend_step()
        self.logged += [(step, name, float(value)) for name, value in metrics.items()]

    def backend_step(self):
        executor = cstorch.current_executor()
        return self.first_step + executor.user_iteration

    @cstorch.trace
    def training_step(self, batch):
        outputs = self.compiled(batch)
        self.call("on_before_backward")
        self.callbacks[0].scaler.scale(outputs["loss"]).backward()
        self.call("on_before_optimizer_step")
        scaler = self.callbacks[0].scaler
        torch.nn.utils.clip_grad_norm_(list(self.model.parameters()), 1.0)
        scaler.step(self.optimizer)
        scaler.update()
        self.optimizer.zero_grad()
        for scheduler in self.schedulers:
            scheduler.step()
        self.call("on_step_end")
        return outputs

    @cstorch.trace
    def evaluation_step(self, batch):
        with torch.no_grad():
            return self.compiled(batch)

    @cstorch.checkpoint_closure
    def save(self):
        state = {}
        self.call("on_save", state)
        cstorch.save(state, self.folder / f"checkpoint_{self.backend_step()}.mdl")

    def fit(self, steps):
        executor = cstorch.utils.data.DataExecutor(self.loader, steps, checkpoint_steps=2)
        self.model.train()
        for batch in executor:
            outputs = self.training_step(batch)
            self.log(loss=outputs["loss"])
            self.save()
        self.model.eval()
        for batch in cstorch.utils.data.DataExecutor(self.loader, 2):
            self.log_evaluation(self.evaluation_step(batch)["loss"])
        self.logged.append((0, "accuracy", float(self.model.accuracy)))

    @cstorch.step_closure
    def log_evaluation(self, loss):
        self.logged.append((0, "evaluation", loss.item()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--resume", type=Path)
    options = parser.parse_args()
    trainer = Trainer(options.folder)
    if options.resume:
        trainer.call("on_load", cstorch.load(options.resume))
    trainer.fit(options.steps)
    (options.folder / "logged.json").write_text(json.dumps(trainer.logged))


if __name__ == "__main__":
    main()
"""

Logged = list[tuple[int, str, float]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trainer")
    (folder / "train_it.py").write_text(PROGRAM)
    (folder / "data.py").write_text(DATA)
    (folder / "cluster.yaml").write_text("runtime: {kind: local}\n")
    return folder


@pytest.fixture(scope="module")
def whole(program: Path) -> tuple[Path, Logged]:
    """The folder of an uninterrupted run on one system, and what it has logged."""
    folder = program / "whole"
    return folder, train(program, folder)


def train(program: Path, folder: Path, *options: str, num_csx: int = 1) -> Logged:
    """Run the program; return what it has logged."""
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(program)
        assert main(["exec", f"--num_csx={num_csx}", "train_it.py", str(folder), *options]) == 0
    return [
        (step, name, value)
        for step, name, value in json.loads((folder / "logged.json").read_text())
    ]


def series(logged: Logged, name: str) -> dict[int, float]:
    return {step: value for step, found, value in logged if found == name}


def test_trainer_with_hooks_trains_evaluates_and_saves(whole: tuple[Path, Logged]) -> None:
    folder, logged = whole
    losses = series(logged, "loss")
    assert list(losses) == [1, 2, 3, 4]
    assert losses[4] < losses[1]
    assert all(value > 0 for _, name, value in logged if name.startswith("gradient/"))
    assert len(series(logged, "weights")) == 4
    assert 0 <= series(logged, "accuracy")[0] <= 1
    state: dict[str, Any] = Reader(folder / "checkpoint_2.mdl").objects
    assert state["dataloader"] == {"samples_streamed": 16, "version": 1, "batches": 2}
    assert state["global_step"] == 2


def test_resumed_trainer_goes_on_as_if_it_had_not_stopped(
    program: Path, whole: tuple[Path, Logged]
) -> None:
    """Losses, norms and loss scales are those of the uninterrupted run, on two systems."""
    folder, logged = whole
    options = ["--steps=2", f"--resume={folder / 'checkpoint_2.mdl'}"]
    resumed = train(program, program / "resumed", *options, num_csx=2)
    assert resumed == [entry for entry in logged if entry[0] not in {1, 2}]
