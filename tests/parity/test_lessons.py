"""Programs in the shape of public lessons run as typed, with the values of plain PyTorch."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from tests.support.files.event_files import scalars
from waferstream.cli.main import main

PARTS = """
import json
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        row = torch.randint(0, 20, (7,), generator=generator)
        return {"input_ids": row[:-1], "labels": row[1:]}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.hidden = nn.Linear(8, 16)
        self.relu = nn.ReLU()
        self.head = nn.Linear(16, 20)

    def forward(self, input_ids):
        return self.head(self.relu(self.hidden(self.embedding(input_ids))))


def loss_of(logits, labels):
    return nn.functional.cross_entropy(logits.view(-1, 20), labels.view(-1))


def made():
    torch.manual_seed(3)
    return Net()


def loader_of_rows():
    return DataLoader(Rows(), batch_size=8, shuffle=True)
"""

LESSON = """
import cerebras.pytorch as cstorch
from parts import *

model = made()
backend = cstorch.backend("CSX", artifact_dir="artifacts")
cstorch.amp.enable_mixed_precision(False)
compiled_model = cstorch.compile(model, backend)
optimizer = cstorch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)


@cstorch.step
def train_step(batch):
    loss = loss_of(compiled_model(batch["input_ids"]), batch["labels"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


loader = loader_of_rows()
"""

SHUFFLED = """
losses = []
for _ in range(2):
    executor = cstorch.utils.data.DataExecutor(loader, num_steps=6, checkpoint_steps=4)
    for step, batch in enumerate(executor):
        loss = train_step(batch)
        losses.append(loss.item())
print(json.dumps(losses))
"""

SAVED = """
is_resumed = os.path.exists("checkpoint.pt")
if is_resumed:
    checkpoint = torch.load("checkpoint.pt")
    compiled_model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
was_compiled = os.path.exists("artifacts/model.csx")
losses = []
executor = cstorch.utils.data.DataExecutor(loader, num_steps=4)
for step, batch in enumerate(executor):
    losses.append(train_step(batch).item())
    if step == 1 and not is_resumed:
        states = {"model": compiled_model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(states, "checkpoint.pt")
print(json.dumps([was_compiled, losses]))
"""

HALF = """
losses = []
for batch in cstorch.utils.data.DataExecutor(loader, num_steps=6):
    losses.append(train_step(batch).item())
dtypes = {str(value.dtype) for value in compiled_model.state_dict().values()}
print(json.dumps([losses, sorted(dtypes)]))
"""

MEASURED = """
def share_of_zeros(module):
    shares = []

    def note(_module, _inputs, output):
        shares.append((output == 0).float().mean().item())

    handle = module.relu.register_forward_hook(note)
    with torch.no_grad():
        for batch in DataLoader(Rows(), batch_size=12):
            module(batch["input_ids"])
    handle.remove()
    return shares


shares = [share_of_zeros(compiled_model)]
for batch in cstorch.utils.data.DataExecutor(loader, num_steps=6):
    train_step(batch)
shares.append(share_of_zeros(compiled_model))
print(json.dumps(shares))
"""

HOOKED = """
shares = []


@model.relu.register_forward_hook
def note(_module, _inputs, output):
    shares.append(SHARE)


for batch in cstorch.utils.data.DataExecutor(loader, num_steps=2):
    train_step(batch)
print(sum(shares))
"""

ARTICLE = """
import cerebras.pytorch
from cerebras.framework import CerebrasModel, CSConfig
from cerebras.pytorch import Trainer
from parts import *


class Model(CerebrasModel):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.net = Net()

    def forward(self, input_ids):
        return self.net(input_ids)


cerebras.pytorch.amp.enable_mixed_precision(False)
model = Model()
trainer = Trainer(
    model=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9),
    config=CSConfig(target_device="cs3", max_steps=9),
)
print(json.dumps(trainer.fit(loader_of_rows())))
"""

EARLIER = """
import cerebras_pytorch.experimental as cstorch
from parts import *

model = made()
compiled_model = cstorch.compile(model, backend="CSX")
cstorch.amp.use_bfloat16(True)
cstorch.amp.enable_mixed_precision(False)
optimizer = cstorch.optim.configure_optimizer(
    optimizer_type="sgd", params=model.parameters(), lr=0.0, momentum=0.9, log_summaries=True
)
lr_scheduler = cstorch.optim.configure_lr_scheduler(
    optimizer,
    [
        {
            "scheduler": "Linear",
            "initial_learning_rate": 0.0,
            "end_learning_rate": 0.2,
            "steps": 2,
        },
        {"scheduler": "Constant", "learning_rate": 0.2},
    ],
)
writer = cstorch.utils.tensorboard.SummaryWriter("events")


@cstorch.compile_step
def training_step(batch):
    loss = loss_of(compiled_model(batch["input_ids"]), batch["labels"].int())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    lr_scheduler.step()
    cstorch.summarize_scalar("loss", loss)
    return loss


losses = []


@cstorch.step_closure
def post_training_step(loss):
    losses.append(loss.item())


dataloader = cstorch.utils.data.DataLoader(lambda: DataLoader(Rows(), batch_size=8))
executor = cstorch.utils.data.DataExecutor(
    dataloader,
    num_steps=6,
    checkpoint_steps=3,
    cs_config=cstorch.utils.CSConfig(num_csx=2, num_workers_per_csx=1, mount_dirs=None),
    writer=writer,
)
for batch in executor:
    post_training_step(training_step(batch))
writer.close()
print(json.dumps(losses))
"""

Finish = Callable[[str], tuple[int, str, str]]
Run = Callable[[str], Any]


@pytest.fixture
def finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Finish:
    """Run a program with ``waferstream exec`` on two systems; return code, output and errors."""
    (tmp_path / "parts.py").write_text(PARTS)
    (tmp_path / "cluster.yaml").write_text("runtime: {kind: local}\n")
    monkeypatch.chdir(tmp_path)

    def finished(program: str) -> tuple[int, str, str]:
        (tmp_path / "lesson.py").write_text(program)
        return main(["exec", "--num_csx=2", "lesson.py"]), *capfd.readouterr()

    return finished


@pytest.fixture
def run(finish: Finish) -> Run:
    """Run a program to its end; return what it prints last."""

    def printed(program: str) -> Any:
        code, out, err = finish(program)
        assert code == 0, err
        return json.loads(out.splitlines()[-1])

    return printed


@pytest.fixture
def parts() -> dict[str, Any]:
    """The model, the data and the loss of the lessons, for a plain loop."""
    names: dict[str, Any] = {}
    exec(PARTS, names)
    return names


class PlainLoop:
    """The lesson in plain PyTorch."""

    def __init__(self, parts: dict[str, Any], dtype: torch.dtype = torch.float32) -> None:
        self.model = parts["made"]().to(dtype)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.2, momentum=0.9)
        self.loader = parts["loader_of_rows"]()
        self._loss_of = parts["loss_of"]

    def loss(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the loss of a batch."""
        loss: torch.Tensor = self._loss_of(self.model(batch["input_ids"]), batch["labels"])
        return loss

    def step(self, batch: dict[str, torch.Tensor]) -> float:
        """Take a step; return its loss."""
        loss = self.loss(batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.item())


def near(expected: Any) -> Any:
    """Return what equals the losses of a plain loop up to the order of sums."""
    return pytest.approx(expected, abs=2e-5)


def test_step_and_plain_loader_train_as_a_plain_loop(finish: Finish, parts: dict[str, Any]) -> None:
    """Shuffled batches in dicts, losses read in the loop, two loops over one loader.

    The log says once what the reading costs.
    """
    plain = PlainLoop(parts)
    expected = [plain.step(batch) for _ in range(2) for batch in plain.loader]
    _, out, err = finish(LESSON + SHUFFLED)
    assert json.loads(out.splitlines()[-1]) == near(expected)
    assert (out + err).count("in a @cstorch.step_closure it costs nothing") == 1


def test_states_saved_by_torch_go_on_as_in_a_plain_loop(run: Run, parts: dict[str, Any]) -> None:
    """They are saved in the loop and loaded in another run, which finds the model compiled."""
    plain = PlainLoop(parts)
    first = [plain.step(batch) for batch in itertools.islice(plain.loader, 2)]
    states = copy.deepcopy((plain.model.state_dict(), plain.optimizer.state_dict()))
    was_compiled, seen = run(LESSON + SAVED)
    assert not was_compiled
    assert seen[:2] == near(first)
    plain = PlainLoop(parts)
    plain.model.load_state_dict(states[0])
    plain.optimizer.load_state_dict(states[1])
    expected = [plain.step(batch) for batch in itertools.islice(plain.loader, 4)]
    assert run(LESSON + SAVED) == [True, near(expected)]


def test_model_of_an_article_trains_without_a_loss(run: Run, parts: dict[str, Any]) -> None:
    """Class numbers as targets have the cross entropy; the data repeat in another order."""
    plain = PlainLoop(parts)
    expected = [plain.step(batch) for _ in range(2) for batch in plain.loader]
    assert run(ARTICLE) == near(expected[:9])


def test_model_in_bfloat16_computes_in_it(run: Run, parts: dict[str, Any]) -> None:
    """Updates are those of fp32 masters, so that later losses are near those of a plain loop."""
    plain = PlainLoop(parts, torch.bfloat16)
    batches = list(plain.loader)
    samples = [{name: value[i : i + 1] for name, value in batches[0].items()} for i in range(8)]
    first = sum(plain.loss(sample).item() for sample in samples) / 8
    expected = [plain.step(batch) for batch in batches]
    seen, dtypes = run(LESSON.replace("made()", "made().to(torch.bfloat16)") + HALF)
    assert seen[0] == pytest.approx(first, abs=1e-6)
    assert seen == pytest.approx(expected, abs=0.05)
    assert dtypes == ["torch.bfloat16"]


def test_hooks_measure_activations_between_loops(run: Run, parts: dict[str, Any]) -> None:
    """A call outside of a step reads the weights of now."""
    names: dict[str, Any] = {**parts}
    exec(MEASURED[: MEASURED.index("shares = [share")], names)
    plain = PlainLoop(parts)
    expected = [names["share_of_zeros"](plain.model)]
    for batch in plain.loader:
        plain.step(batch)
    expected.append(names["share_of_zeros"](plain.model))
    before, after = run(LESSON + MEASURED)
    assert before == expected[0]
    assert after == pytest.approx(expected[1], abs=1e-3)


@pytest.mark.parametrize(
    ("share", "code"),
    [
        ("(output == 0).float().mean().item()", "op-depends-on-values"),
        ("(output == 0).float().mean()", "tensor-left-by-trace"),
    ],
)
def test_hooks_inside_a_step_are_refused_where_they_read(
    finish: Finish, share: str, code: str
) -> None:
    """The step is recorded: its activations have values on the wafer only."""
    status, _, said = finish(LESSON + HOOKED.replace("SHARE", share))
    assert status == 1
    assert f"[{code}]" in said
    assert "remedy: return " in said


def test_program_of_an_earlier_release_trains_as_a_plain_loop(
    run: Run, parts: dict[str, Any]
) -> None:
    """Optimizer and schedule by name, settings of the cluster and a writer for the executor."""
    plain = PlainLoop(parts)
    expected = []
    for step, batch in enumerate(DataLoader(parts["Rows"](), batch_size=8)):
        plain.optimizer.param_groups[0]["lr"] = 0.1 * min(step, 2)
        expected.append(plain.step(batch))
    assert run(EARLIER) == near(expected)
    (file,) = Path("events").glob("events.*")
    assert [(name, step) for name, _, step in scalars(file)] == [("loss", i) for i in range(1, 7)]
