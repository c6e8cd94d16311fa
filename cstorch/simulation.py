"""``cstorch.simulate``: predict the time of training steps without training."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch import nn

_PROVIDER = "waferstream.simulation.program"
"""Module that simulates and reports: it is built on this package, and imported when called."""


def simulate(model: nn.Module, batch: Any, num_csx: Any = 1, **options: Any) -> Any:
    """Predict a training step of a model on each number of systems, as ``run.py --simulate``.

        print(cstorch.simulate(model, batch, num_csx=[1, 2, 4], loss_fn=loss_fn))

    Arguments, result and errors are those of ``waferstream.simulation.program.simulate``.
    """
    return import_module(_PROVIDER).simulate(model, batch, num_csx, **options)
