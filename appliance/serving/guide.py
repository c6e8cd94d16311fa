"""What keeps an answer to a grammar: which tokens may come next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from waferstream.core.errors import ConfigError


class Guide(Protocol):
    """A grammar that follows the tokens of one answer.

    Raises:
        ConfigError: From any method: it cannot go on. Other answers do.
    """

    def allowed(self) -> np.ndarray:
        """Return whether each token may come next, (vocabulary,); ends may where it is complete."""

    def take(self, token: int) -> None:
        """Follow a token that may come."""

    @property
    def is_complete(self) -> bool:
        """Whether the answer is whole, and nothing may follow."""


MakeGuide = Callable[[str], Guide]
"""Returns the guide of a new answer by the text of a grammar."""


def no_guide(grammar: str) -> Guide:
    """Refuse a grammar: for batchers whose requests have none."""
    raise ConfigError(
        "a batcher must be given what keeps answers to grammars",
        code="grammar-without-guide",
        value=grammar[:80],
        remedy="pass make_guide to Batcher",
    )
