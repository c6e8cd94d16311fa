"""Let the model that `make train` has trained write on.

python examples/sample_text.py --model_dir model_dir --prompt "def "
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
import yaml

import cstorch
from waferstream.workload.models import build_model


def load_model(params: Path, model_dir: Path) -> Any:
    """Return the model of a params file with the weights of its newest checkpoint."""
    section = yaml.safe_load(params.read_text(encoding="utf-8"))["trainer"]["init"]["model"]
    model = build_model(section, seed=0)
    found = sorted(model_dir.glob("checkpoint_*.mdl"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise SystemExit(f"no checkpoint in {model_dir}: train first, as `make train` does")
    model.load_state_dict(dict(cstorch.load(found[-1])["model"]))
    return model.eval()


@torch.no_grad()
def sample(model: Any, prompt: str, length: int, temperature: float = 0.7) -> str:
    """Return the prompt with ``length`` further bytes, drawn one after the other."""
    generator = torch.Generator().manual_seed(0)
    window = model.config.max_position_embeddings
    found = list(prompt.encode())
    for _ in range(length):
        scores = model.logits(torch.tensor([found[-window:]]))[0, -1]
        odds = torch.softmax(scores / temperature, dim=0)
        found.append(int(torch.multinomial(odds, 1, generator=generator)))
    return bytes(found).decode(errors="replace")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--params", type=Path, default=Path("params.yaml"))
    parser.add_argument("--model_dir", type=Path, default=Path("model_dir"))
    parser.add_argument("--prompt", default="def ")
    parser.add_argument("--length", type=int, default=300, help="bytes to write")
    given = parser.parse_args()
    print(sample(load_model(given.params, given.model_dir), given.prompt, given.length))
