"""Small models of every library train the weights of plain PyTorch, on whole batches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cstorch import backends
from scripts.check_models import FAMILIES, outcome_of

COUPLED = ("clip", "dino", "dpr", "mixtral")
"""Models whose loss depends on which samples share a micro-batch."""

DAILY = ("fc_mnist", "gpt2")


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """Take back the flags that a check sets."""
    yield
    backends.reset()


def models() -> list[object]:
    """Return all models, with a mark on those of the nightly run."""
    return [
        pytest.param(family, name, id=name, marks=[] if name in DAILY else [pytest.mark.nightly])
        for family in ("zoo", "transformers")
        for name in FAMILIES[family]
        if name not in COUPLED
    ]


@pytest.mark.parametrize(("family", "name"), models())
def test_model_is_equal_or_close(family: str, name: str) -> None:
    found = outcome_of(family, name)
    assert found.outcome in ("equal", "close"), found
