"""Train a LLaMA of Hugging Face's transformers, with torch's optimizer and a torch DataLoader.

python examples/hugging_face_llama.py --steps 10

Only the configuration is used: nothing is downloaded. `pip install transformers` first. For a
pretrained model write `LlamaForCausalLM.from_pretrained(NAME)` in place of the last line of
`make_model`.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForCausalLM

import cstorch

LENGTH = 16
VOCABULARY = 64


def make_model() -> torch.nn.Module:
    """Return a LLaMA small enough to train while you watch."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=LENGTH,
    )
    model: torch.nn.Module = LlamaForCausalLM(config)
    return model


class Counting(Dataset[dict[str, torch.Tensor]]):
    """Sequences that count upward: the model learns the next number."""

    def __len__(self) -> int:
        return VOCABULARY

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = (7 * index + torch.arange(LENGTH)) % VOCABULARY
        return {"input_ids": row, "labels": row}


def train(num_csx: int, steps: int) -> list[float]:
    """Train on emulated CS-3 systems; return the loss of every step."""
    model = make_model()
    cluster: Any = {"runtime": {"kind": "local"}}  # leave out to run on all cores
    trainer = cstorch.Trainer(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2),
        config=cstorch.CSConfig(
            target_device="cs3", num_csx=num_csx, max_steps=steps, cluster=cluster
        ),
    )
    losses = trainer.fit(DataLoader(Counting(), batch_size=8))
    trainer.shutdown()  # the model now has the trained weights
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num_csx", type=int, default=2, help="CS-3 systems")
    parser.add_argument("--steps", type=int, default=10)
    given = parser.parse_args()
    first, *_, last = train(given.num_csx, given.steps)
    print(f"loss {first:.3f} -> {last:.3f}")
