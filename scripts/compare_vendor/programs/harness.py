"""What the programs share: command line, training, cases in own processes, results as a file.

A program imports the front end under the vendor's name and nothing of this project, so it runs
in both environments. Its cases return named arrays, which ``main`` writes to one ``.npz`` file as
``<case>/<name>``. An environment has one backend per process, so every case is forked.
"""

from __future__ import annotations

import argparse
import multiprocessing
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cerebras.pytorch as cstorch
import numpy as np
import torch

Results = Mapping[str, Any]
Case = Callable[[str], Results]
"""A case of a program: from the device to arrays, numbers or lists of numbers by name."""


def main(cases: Mapping[str, Case]) -> None:
    """Run all cases on ``--device``, or those that ``--only`` names, and write ``--out``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="CPU")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=list(cases))
    options = parser.parse_args()
    arrays: dict[str, Any] = {}
    for name in options.only:
        for key, value in _in_own_process(cases[name], options.device).items():
            arrays[f"{name}/{key}"] = value
    np.savez(options.out, **arrays)


def network(kind: Callable[[], torch.nn.Module], device: str) -> tuple[torch.nn.Module, Any]:
    """Return a network with weights of ``formula_weights``, and the same compiled, in fp32."""
    backend = cstorch.backend(device)
    cstorch.amp.enable_mixed_precision(False)
    with backend.device:
        model = kind()
    model.load_state_dict(formula_weights(model))
    return model, cstorch.compile(model, backend)


def train(
    compiled: Any, optimizer: Any, batches: Callable[[], list[Any]], num_steps: int
) -> list[float]:
    """Train some steps of a compiled network, each with the tensors of a batch; return losses."""

    @cstorch.trace
    def training_step(batch: Any) -> Any:
        loss = compiled(*batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    losses: list[float] = []

    @cstorch.step_closure
    def log_loss(loss: Any) -> None:
        losses.append(loss.item())

    loader = cstorch.utils.data.DataLoader(batches)
    for batch in cstorch.utils.data.DataExecutor(loader, num_steps=num_steps):
        log_loss(training_step(batch))
    return losses


def formula_weights(model: torch.nn.Module, scale: float = 0.5) -> dict[str, torch.Tensor]:
    """Return a state dict of sines of the element's index, equal under every torch release."""
    state = {}
    for offset, (name, tensor) in enumerate(model.state_dict().items()):
        index = np.arange(tensor.numel(), dtype=np.float64) * 0.7 + offset
        values = (scale * np.sin(index)).astype(np.float32).reshape(tuple(tensor.shape))
        state[name] = torch.from_numpy(values)
    return state


def formula_tensor(shape: tuple[int, ...], phase: float) -> torch.Tensor:
    """Return a tensor of cosines of the element's index."""
    index = np.arange(int(np.prod(shape)), dtype=np.float64) * 1.3 + phase
    return torch.from_numpy(np.cos(index).astype(np.float32).reshape(shape))


def arrays_of(state: Mapping[str, Any], prefix: str) -> dict[str, np.ndarray[Any, Any]]:
    """Return the tensors of a state dict as arrays of fp32, their names after ``prefix``."""
    return {
        f"{prefix}.{name}": torch.as_tensor(tensor.to("cpu")).detach().float().numpy()
        for name, tensor in state.items()
    }


def _in_own_process(case: Case, device: str) -> Results:
    """Return the results of a case, or its error under the name ``error``."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(case, device, sender))
    process.start()
    sender.close()
    try:
        results: Results = receiver.recv()
    except EOFError:
        results = {"error": "the process of the case died"}
    process.join()
    return results


def _run(case: Case, device: str, sender: Connection) -> None:
    try:
        results = {name: np.asarray(value) for name, value in case(device).items()}
    except Exception as error:  # an answer as well: the other environment may refuse it, too
        traceback.print_exc()
        results = {"error": np.asarray(f"{type(error).__name__}: {error}")}
    sender.send(results)
