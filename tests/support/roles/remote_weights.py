"""Weights of a running backend, as its servers hold them and as a program reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import cstorch
from tests.support.programs.cstorch_program import cluster_of
from tests.support.roles.local_machine import Regression
from tests.support.runs.tiny_training import Shape

NAME = "layers.0.weight"
SERVERS = Shape(2, servers=2)


def regression_of(backend: cstorch.Backend) -> Regression:
    """Return the model of a backend."""
    assert isinstance(backend.model, Regression)
    return backend.model


def held(backend: cstorch.Backend) -> dict[str, torch.Tensor]:
    """Return what the weight servers hold now."""
    names = [name for name, _ in Regression().named_parameters()]
    return {name: torch.from_numpy(a) for name, a in cluster_of(backend).masters(names).items()}


def same(found: Any, expected: Any) -> bool:
    """Return whether two state dicts are equal bit by bit."""
    return found.keys() == expected.keys() and all(
        torch.equal(found[name], expected[name]) for name in expected
    )


def counted_reads(backend: cstorch.Backend, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows by the name of each weight that is fetched."""
    fetched: list[str] = []
    original = cluster_of(backend).masters

    def masters(names: list[str], state: str = "model") -> dict[str, np.ndarray]:
        fetched.extend(names)
        return original(names, state)

    monkeypatch.setattr(backend.running_cluster, "masters", masters)
    return fetched
