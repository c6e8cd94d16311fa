"""Refuse random numbers that a traced step draws on the host.

Where Python runs once for all steps, every step would compute with the numbers of the trace.
Numbers that torch draws are recorded as ops, and keyed by seed, step and micro-batch
(``keyed_random``).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from waferstream.core.errors import ApplianceCompilationError


@contextmanager
def refuse_host_draws() -> Iterator[None]:
    """Raise ApplianceCompilationError if Python's or NumPy's global generator has moved."""
    before = _states()
    yield
    moved = [name for name, state in _states().items() if state != before[name]]
    if moved:
        raise ApplianceCompilationError(
            "the traced step draws random numbers on the host",
            code="host-random-in-step",
            value=" and ".join(moved),
            rule="Python runs once per trace, so every step would get the same numbers",
            remedy="draw with torch (torch.rand, torch.bernoulli), or in the input function; a "
            "model of transformers may have an option (apply_spec_augment=False)",
        )


def _states() -> dict[str, Any]:
    """Return the state of each global generator, by the name of its module."""
    _, keys, *rest = np.random.get_state()
    return {"random": random.getstate(), "numpy.random": (np.asarray(keys).tobytes(), *rest)}
