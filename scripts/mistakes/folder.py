"""The files that the folder of every mistake has: a valid params file, data and a program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.mistakes.mistake import Edit, Typed

PARAMS = """\
trainer:
  init:
    seed: 1
    model_dir: model_dir
    model:
      name: gpt2
      vocab_size: 256
      max_position_embeddings: 32
      hidden_size: 32
      num_hidden_layers: 2
      num_heads: 2
      filter_size: 64
    optimizer:
      AdamW: {lr: 0.01, weight_decay: 0.1}
    loop: {max_steps: 4}
    checkpoint: {steps: 2}
  fit:
    train_dataloader:
      data_processor: TextDataProcessor
      path: text.txt
      batch_size: 8
      max_sequence_length: 32
"""
CLUSTER = "runtime: {kind: local}\n"
PROGRAM = """\
import torch
from torch.utils.data import DataLoader, Dataset

import cstorch


class Samples(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((4,), index / 64), index % 3


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, inputs):
        return self.layer(inputs)


model = Model()
trainer = cstorch.Trainer(
    model=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
    config=cstorch.CSConfig(num_csx=2, max_steps=4, cluster="cluster.yaml"),
    loss_fn=torch.nn.functional.cross_entropy,
)
trainer.fit(DataLoader(Samples(), batch_size=8))
trainer.shutdown()
"""
TEXT = "".join(f"line {number} of a text from which a model can learn\n" for number in range(800))


@contextmanager
def prepared(typed: Typed) -> Iterator[Path]:
    """Make the folder of a mistake; remove it at the end of the block."""
    with TemporaryDirectory(prefix="mistake_") as name:
        folder = Path(name)
        common = {"cluster.yaml": CLUSTER, "text.txt": TEXT}
        texts = {"params.yaml": PARAMS, "program.py": PROGRAM}
        edited = {file: _edited(text, typed.edits) for file, text in texts.items()}
        for file, content in (common | edited | dict(typed.files)).items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            if file.endswith("/"):
                path.mkdir()
            else:
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
        _check_edits(typed.edits)
        with typed.prepare(folder):
            yield folder


def _edited(text: str, edits: tuple[Edit, ...]) -> str:
    for old, new in edits:
        text = text.replace(old, new)
    return text


def _check_edits(edits: tuple[Edit, ...]) -> None:
    """Raise ValueError for a text that neither file has."""
    for old, _ in edits:
        if old not in PARAMS and old not in PROGRAM:
            raise ValueError(f"nothing to replace: {old!r}")
