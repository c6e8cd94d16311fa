"""Orders of the sampler, lengths of loops, and the batches and closures of a loop."""

from __future__ import annotations

from functools import partial
from typing import Any

import cerebras.pytorch as cstorch
import numpy as np
import torch
from harness import Results, main

utils = cstorch.utils.data


class Numbers(torch.utils.data.Dataset[int]):
    """The numbers below a bound."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __getitem__(self, index: int) -> int:
        return index

    def __len__(self) -> int:
        return self.count


def order(count: int, device: str, epochs: int = 1, **options: Any) -> Results:
    """Return the samples of some epochs of a sampler, flattened, and the sizes of batches."""
    cstorch.backend(device)
    sampler = utils.DistributedSampler(Numbers(count), **options)
    entries = [entry for _ in range(epochs) for entry in sampler]
    batches = [np.atleast_1d(np.asarray(entry, dtype=np.float64)) for entry in entries]
    sizes = [len(batch) for batch in batches]
    return {"order": np.concatenate(batches), "sizes": sizes}


def length(device: str, **options: Any) -> Results:
    """Return the steps of a loop over ten batches."""
    cstorch.backend(device)
    loader = utils.DataLoader(ten_batches)
    return {"steps": utils.compute_num_steps(loader, **options)}


def ten_batches() -> list[torch.Tensor]:
    """Return ten batches."""
    return [torch.full((2, 1), float(step)) for step in range(10)]


def loop(device: str, **options: Any) -> Results:
    """Return the batch of each step, and the steps at which closures run."""
    backend = cstorch.backend(device)
    cstorch.amp.enable_mixed_precision(False)
    with backend.device:
        model = torch.nn.Linear(1, 1)
    model.load_state_dict({"weight": torch.ones(1, 1), "bias": torch.zeros(1)})
    compiled = cstorch.compile(model, backend)
    optimizer = cstorch.optim.SGD(model.parameters(), lr=0.0)
    seen: list[float] = []
    steps: list[int] = []
    saved: list[int] = []

    @cstorch.trace
    def training_step(batch: Any) -> Any:
        result = compiled(batch).mean()
        result.backward()
        optimizer.step()
        optimizer.zero_grad()
        return result

    @cstorch.step_closure
    def log(result: Any, step: int) -> None:
        seen.append(result.item())
        steps.append(step)

    @cstorch.checkpoint_closure
    def save(step: int) -> None:
        saved.append(step)

    executor = utils.DataExecutor(utils.DataLoader(ten_batches), **options)
    for step, batch in enumerate(executor, start=1):
        log(training_step(batch), step)
        save(step)
    return {"seen": seen, "steps": steps, "saved": saved, "length": len(executor)}


CASES = {
    "sampler": partial(order, 20, shuffle=True, seed=5),
    "sampler-plain": partial(order, 20, shuffle=False),
    "sampler-batches": partial(order, 22, shuffle=True, seed=5, batch_size=4),
    "sampler-keep-last": partial(order, 22, shuffle=True, seed=5, batch_size=4, drop_last=False),
    "sampler-start": partial(order, 22, shuffle=True, seed=5, batch_size=4, start_index=8),
    "sampler-epochs": partial(order, 22, shuffle=True, seed=5, batch_size=4, epochs=3),
    "sampler-start-later": partial(order, 22, shuffle=True, seed=5, start_index=30),
    "sampler-repeated": partial(order, 10, shuffle=True, seed=5, num_samples=25),
    "sampler-part": partial(order, 20, shuffle=True, seed=5, num_samples=12, batch_size=4),
    "sampler-unsharded": partial(order, 20, shuffle=True, seed=5, shard=False, batch_size=4),
    "steps": partial(length, num_steps=7),
    "steps-max": partial(length, initial_step=3, max_steps=8),
    "steps-both": partial(length, initial_step=3, num_steps=7, max_steps=8),
    "steps-none-left": partial(length, initial_step=9, max_steps=8),
    "steps-epochs": partial(length, num_epochs=3),
    "steps-epoch-length": partial(length, num_epochs=3, steps_per_epoch=4),
    "steps-long-epoch": partial(length, num_epochs=3, steps_per_epoch=40),
    "steps-accumulated": partial(length, num_epochs=2, grad_accum_steps=4),
    "steps-two-lengths": partial(length, num_epochs=2, num_steps=5),
    "steps-unknown": partial(length),
    "loop": partial(loop),
    "loop-wraps": partial(loop, num_steps=13),
    "loop-checkpoints": partial(loop, num_steps=10, checkpoint_steps=4),
    "loop-activations": partial(loop, num_steps=10, activation_steps=4),
    "loop-both": partial(loop, num_steps=12, activation_steps=6, checkpoint_steps=4),
}

if __name__ == "__main__":
    main(CASES)
