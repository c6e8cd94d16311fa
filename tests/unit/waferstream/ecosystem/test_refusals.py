"""What trainers of others are asked for that a cluster does not do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning
import torch
import torchmetrics
import transformers
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.support.errors import raises
from tests.support.programs.ended import ended_backend
from waferstream.core.errors import ConfigError
from waferstream.ecosystem.accelerate import Accelerator
from waferstream.ecosystem.lightning import WaferStreamStrategy
from waferstream.ecosystem.transformers import WaferStreamCallback

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),  # what the trainers recommend
]

LOCAL: Any = {"runtime": {"kind": "local"}}


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    with ended_backend():
        yield


class Module(pytorch_lightning.LightningModule):  # type: ignore[misc]
    def __init__(self, *, is_automatic: bool = True) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.accuracy = torchmetrics.MeanMetric()
        self.automatic_optimization = is_automatic

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.layer(batch[0]).square().mean()
        self.log("accuracy", self.accuracy)
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(module: Module, folder: Path, **options: Any) -> None:
    strategy = WaferStreamStrategy(cluster=LOCAL)
    trainer = pytorch_lightning.Trainer(
        max_steps=1,
        accelerator="cpu",
        strategy=strategy,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        default_root_dir=folder,
        **options,
    )
    trainer.fit(module, DataLoader(TensorDataset(torch.ones(4, 2)), 4))


def test_a_metric_is_not_updated_in_a_step(tmp_path: Path) -> None:
    with raises(ConfigError, "metric-in-training-step"):
        fit(Module(), tmp_path)


def test_lightning_steps_the_optimizer(tmp_path: Path) -> None:
    with raises(ConfigError, "manual-optimization"):
        fit(Module(is_automatic=False), tmp_path)


def test_lightning_accumulates_no_gradients(tmp_path: Path) -> None:
    with raises(ConfigError, "trainer-accumulates"):
        fit(Module(), tmp_path, accumulate_grad_batches=2)


def test_the_strategy_has_a_name() -> None:
    trainer = pytorch_lightning.Trainer(accelerator="cpu", strategy="waferstream", logger=False)
    assert isinstance(trainer.strategy, WaferStreamStrategy)


def test_transformers_accumulates_no_gradients(tmp_path: Path) -> None:
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), gradient_accumulation_steps=4, use_cpu=True
    )
    with raises(ConfigError, "trainer-accumulates") as caught:
        WaferStreamCallback().on_train_begin(arguments)
    assert "per_device_train_batch_size=32" in str(caught.value.remedy)


def test_accelerate_accumulates_no_gradients() -> None:
    with raises(ConfigError, "trainer-accumulates"):
        Accelerator(gradient_accumulation_steps=2)


def test_accelerate_prepares_one_model() -> None:
    models = [nn.Linear(2, 2), nn.Linear(2, 2)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    with raises(ConfigError, "several-models"):
        Accelerator(cluster=LOCAL).prepare(*models, *optimizers)
