"""Trainers of others with one changed line: losses of the same program without it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import accelerate
import peft
import pytest
import pytorch_lightning
import torch
import transformers
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from tests.support.programs.ended import ended_backend
from waferstream.ecosystem.accelerate import Accelerator
from waferstream.ecosystem.lightning import WaferStreamStrategy
from waferstream.ecosystem.transformers import WaferStreamCallback

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),  # what the trainers recommend
]

LOCAL: Any = {"runtime": {"kind": "local"}}
VOCABULARY, LENGTH = 32, 8


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    with ended_backend():
        yield


def llama() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=LENGTH,
    )
    return transformers.LlamaForCausalLM(config)


def sequences() -> list[dict[str, torch.Tensor]]:
    """Sequences that count upward; some have labels that no loss counts."""
    rows = [(7 * i + torch.arange(LENGTH)) % VOCABULARY for i in range(24)]
    ignored = [torch.where(torch.arange(LENGTH) < i % 3, -100, row) for i, row in enumerate(rows)]
    return [{"input_ids": row, "labels": own} for row, own in zip(rows, ignored, strict=True)]


def train_with_transformers(folder: Path, callbacks: list[Any]) -> list[float]:
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=3,
        per_device_train_batch_size=8,
        learning_rate=1e-2,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=3,
        save_steps=3,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(
        llama(), arguments, train_dataset=sequences(), eval_dataset=sequences(), callbacks=callbacks
    )
    trainer.train()
    logged = trainer.state.log_history
    return [log.get("loss", log.get("eval_loss")) for log in logged if "train_loss" not in log]


def test_transformers_trainer(tmp_path: Path) -> None:
    callback = WaferStreamCallback(num_csx=2, cluster=LOCAL)
    losses = train_with_transformers(tmp_path / "wafer", [callback])
    assert losses == pytest.approx(train_with_transformers(tmp_path / "plain", []), rel=1e-5)
    saved = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "wafer" / "checkpoint-3")
    plain = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "plain" / "checkpoint-3")
    for weight, expected in zip(saved.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(weight, expected, rtol=1e-3, atol=1e-3)


class VisionTransformer(pytorch_lightning.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(16, 4)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        return self.head(self.encoder(tokens).mean(dim=1))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        images, labels = batch
        scores = self(images)
        loss = functional.cross_entropy(scores, labels)
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.log("accuracy", (scores.argmax(dim=-1) == labels).float().mean())
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        images, labels = batch
        self.log("val_loss", functional.cross_entropy(self(images), labels))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class Losses(pytorch_lightning.Callback):  # type: ignore[misc]
    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.values += [outputs["loss"].item(), trainer.callback_metrics["accuracy"].item()]


def train_with_lightning(folder: Path, **options: Any) -> list[float]:
    pytorch_lightning.seed_everything(0, verbose=False)
    module, losses = VisionTransformer(), Losses()
    data = TensorDataset(torch.randn(24, 3, 8, 8), torch.randint(0, 4, (24,)))
    trainer = pytorch_lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=0.5,
        default_root_dir=folder,
        callbacks=[losses],
        **options,
    )
    trainer.fit(module, DataLoader(data, 8, shuffle=True), DataLoader(data, 8))
    return [*losses.values, *map(float, trainer.callback_metrics.values())]


def test_lightning_trainer(tmp_path: Path) -> None:
    strategy = WaferStreamStrategy(num_csx=2, cluster=LOCAL)
    losses = train_with_lightning(tmp_path, strategy=strategy)
    assert losses == pytest.approx(train_with_lightning(tmp_path), rel=1e-5)


def train_with_accelerate(accelerator: Any, *, adapts: bool) -> list[float]:
    model = llama()
    if adapts:
        lora = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        model = peft.get_peft_model(model, lora)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    loader: Any = DataLoader(sequences(), 8, shuffle=True)  # type: ignore[arg-type]
    schedule = transformers.get_scheduler("linear", optimizer, 1, 3)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    total, losses = 0.0, []
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            total += loss.detach().float()
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        losses += [float(total), model(**batch).loss.item()]
    accelerator.end_training()
    return losses


@pytest.mark.parametrize(
    "adapts", [pytest.param(False, marks=pytest.mark.nightly), True], ids=["all", "lora"]
)
def test_accelerate_loop(adapts: bool) -> None:
    losses = train_with_accelerate(Accelerator(num_csx=2, cluster=LOCAL), adapts=adapts)
    plain = train_with_accelerate(accelerate.Accelerator(cpu=True), adapts=adapts)
    assert losses == pytest.approx(plain, rel=1e-5)
