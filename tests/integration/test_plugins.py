"""A package of a stranger's adds a model, data, an optimizer, a logger and a callback by its metadata."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memoryx.optim.rule import RULES
from tests.support.runs.tiny_run import digest_of, run_here, write_run
from waferstream.core.user_code import USER_CODE

METADATA = "Metadata-Version: 2.1\nName: tiny-package\nVersion: 1.0\n"
ENTRY_POINTS = """[waferstream.models]
line = tiny_package:LINE
[waferstream.data_processors]
Points = tiny_package:Points
[waferstream.optimizers]
HalfStep = tiny_package:HalfStep
[waferstream.loggers]
Notes = tiny_package:Notes
[waferstream.callbacks]
Steps = tiny_package:Steps
"""
PACKAGE = '''
from itertools import count
from pathlib import Path

import torch
from torch import nn

from memoryx.optim.rule import LearningRate, Rule
from waferstream.core.config import Config
from waferstream.training.observers.logger import Logger
from waferstream.workload.data import UNKNOWN_LOADING, DataProcessor
from waferstream.workload.model_config import Feature, ModelConfig
from waferstream.workload.models import ModelFamily


class LineConfig(ModelConfig):
    width: int

    def features(self, sequence_length=None):
        return Feature("x", (self.width,)), Feature("y", (1,))


class Line(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.layer = nn.Linear(config.width, 1)

    def initialize(self, seed):
        for parameter in self.parameters():
            parameter.detach().normal_(generator=torch.Generator().manual_seed(seed))

    def forward(self, x, y):
        return nn.functional.mse_loss(self.layer(x), y)


LINE = ModelFamily(Line, LineConfig)


class Source:
    loading = UNKNOWN_LOADING

    def __init__(self, batch_size, width):
        self.batch_size, self.width = batch_size, width

    def __len__(self):
        return 100

    def batch(self, step):
        x = torch.randn(self.batch_size, self.width, generator=torch.Generator().manual_seed(step))
        return {"x": x, "y": x.sum(1, keepdim=True)}

    def __iter__(self):
        return map(self.batch, count())


class Points(DataProcessor):
    width: int

    def source(self):
        return Source(self.batch_size, self.width)


class HalfStep(Rule):
    """Half of a step of SGD."""

    flops_per_element = 2
    is_elementwise = True

    class Arguments(Config):
        lr: LearningRate = None

    def state_shapes(self, shape, hyper):
        return {}

    def update(self, parameters, hyper, step):
        for parameter in parameters:
            parameter.master.add_(parameter.gradient, alpha=-hyper["lr"] / 2)


class Notes(Logger):
    def __init__(self, path):
        self.path = Path(path)

    def log(self, step, numbers):
        with self.path.open("a") as file:
            file.write(f"logged {step}\\n")


class Steps:
    def __init__(self, path):
        self.path = Path(path)

    def on_train_batch_end(self, *arguments):
        with self.path.open("a") as file:
            file.write("stepped\\n")
'''


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package, where this process and those that start from here find it."""
    site = tmp_path / "site"
    metadata = site / "tiny_package-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(METADATA)
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    (site / "tiny_package.py").write_text(PACKAGE)
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr("memoryx.optim.rule.RULES", RULES.copy())
    yield
    sys.modules.pop("tiny_package", None)


def _run(
    folder: Path,
    kind: str,
    optimizer: dict[str, dict[str, float]],
    capsys: pytest.CaptureFixture[str],
) -> str:
    """Train and return what is printed; the files notes and steps have what plugins write."""
    folder.mkdir()
    flags = write_run(
        folder,
        kind=kind,
        init__model={"name": "line", "width": 3},
        init__optimizer=optimizer,
        init__loop={"max_steps": 3},
        init__precision={"precision_opt_level": 0},
        init__logging={"log_steps": 1},
        init__loggers=[{"Notes": {"path": str(folder / "notes")}}],
        init__callbacks=[{"Steps": {"path": str(folder / "steps")}}],
        fit={"train_dataloader": {"data_processor": "Points", "batch_size": 4, "width": 3}},
    )
    code, out, err = run_here(flags, capsys)
    assert code == 0, out + err
    return out


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("kind", ["local", pytest.param("ray", marks=pytest.mark.ray)])
def test_plugins_of_a_package_train(
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also where files may name no code: the package is of whoever installed it."""
    monkeypatch.setenv(USER_CODE, "refuse")
    out = _run(tmp_path / "run", kind, {"HalfStep": {"lr": 0.5}}, capsys)
    assert (tmp_path / "run" / "steps").read_text() == "stepped\n" * 3
    assert (tmp_path / "run" / "notes").read_text() == "logged 1\nlogged 2\nlogged 3\n"
    plain = _run(tmp_path / "other", "local", {"SGD": {"lr": 0.25}}, capsys)
    assert digest_of(out) == digest_of(plain)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"optimizer": {"HalfStepp": {"lr": 0.5}}}, "did you mean 'HalfStep'?"),
        ({"optimizer": {"HalfStep": {"lr": 0.5, "momentun": 1}}}, "unknown key 'momentun'"),
        ({"optimizer": {"HalfStep": 3}}, "a HalfStep is not allowed"),
        ({"callbacks": {"Step": {}}}, "did you mean 'Steps'?"),
        ({"callbacks": {"Steps": 3}}, "value of 'trainer.init.callbacks.Steps' is not allowed"),
        ({"loggers": {"Nots": {}}}, "did you mean 'Notes'?"),
    ],
)
def test_wrong_plugin_is_refused(
    section: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = write_run(tmp_path, **{f"init__{key}": value for key, value in section.items()})
    code, _, err = run_here([*flags, "--validate_only"], capsys)
    assert code != 0
    assert words in err
