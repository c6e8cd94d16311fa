"""Predict how a model's training scales from 1 to 64 systems, and draw it.

python examples/scaling_experiment.py --out scaling.png

Nothing is trained: the model has no values, so sizes that fit no host can be asked for.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import cstorch

VOCABULARY, LENGTH = 50_257, 1_024


class Gpt(nn.Module):
    """A stack of PyTorch's own transformer layers between an embedding and a head."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, width // 64, 4 * width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(depth)
        )
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the scores of the next tokens."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        scores: torch.Tensor = self.head(x)
        return scores


def loss_fn(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean loss over all tokens."""
    return cross_entropy(scores.flatten(0, 1), labels.flatten())


def predict(
    num_csx: Sequence[int], batch_size: int, width: int = 768, depth: int = 12
) -> list[float]:
    """Return samples per second on each number of systems, at the same global batch."""
    with torch.device("meta"):  # shapes without memory
        model = Gpt(width, depth)
        tokens = torch.empty(batch_size, LENGTH, dtype=torch.int64)
    cstorch.backends.csx.performance.micro_batch_size = "fill_wafer"
    simulation = cstorch.simulate(model, (tokens, tokens), num_csx=num_csx, loss_fn=loss_fn)
    print(simulation)
    return [point.emulated.samples_per_s for point in simulation.points]


def draw(path: Path, num_csx: Sequence[int], curves: dict[str, list[float]]) -> None:
    """Draw predicted against ideal throughput, both axes logarithmic."""
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for name, rates in curves.items():
        (line,) = axes.plot(num_csx, rates, marker="o", label=name)
        ideal = [rates[0] / num_csx[0] * count for count in num_csx]
        axes.plot(num_csx, ideal, linestyle=":", color=line.get_color())
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xticks(num_csx, [str(count) for count in num_csx])
    axes.set_xlabel("CS-2 systems")
    axes.set_ylabel("samples/s (dotted: ideal)")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("scaling.png"), help="the picture")
    given = parser.parse_args()
    counts = [1, 2, 4, 8, 16, 32, 64]
    found = {f"global batch {size:,}": predict(counts, size) for size in (512, 4_096)}
    draw(given.out, counts, found)
    print(given.out)
