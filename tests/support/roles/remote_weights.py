"""Weights of a running backend, as its servers hold them and as a program reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import cstorch
from appliance.coordinator.commands import ReadWeights
from tests.support.programs.cstorch_program import cluster_of
from tests.support.roles.local_machine import Regression
from tests.support.runs.tiny_training import Shape
from waferstream.core.roles.role import Command

NAME = "layers.0.weight"
SERVERS = Shape(2, servers=2)


def regression_of(backend: cstorch.Backend) -> Regression:
    """Return the model of a backend."""
    assert isinstance(backend.model, Regression)
    return backend.model


def held(backend: cstorch.Backend) -> dict[str, torch.Tensor]:
    """Return what the weight servers hold now."""
    names = [name for name, _ in Regression().named_parameters()]
    return {
        name: torch.from_numpy(a) for name, a in cluster_of(backend).do(ReadWeights(names)).items()
    }


def same(found: Any, expected: Any) -> bool:
    """Return whether two state dicts are equal bit by bit."""
    return found.keys() == expected.keys() and all(
        torch.equal(found[name], expected[name]) for name in expected
    )


def counted_reads(backend: cstorch.Backend, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows by the name of each weight that is fetched."""
    fetched: list[str] = []

    def note(command: Command[Any]) -> None:
        if isinstance(command, ReadWeights):
            fetched.extend(command.names)

    watch_commands(backend, monkeypatch, note)
    return fetched


def watch_commands(
    backend: cstorch.Backend,
    monkeypatch: pytest.MonkeyPatch,
    note: Callable[[Command[Any]], object],
) -> None:
    """Call ``note`` with each command that a running cluster gets."""
    original = cluster_of(backend).do

    def do(command: Command[Any]) -> Any:
        note(command)
        return original(command)

    monkeypatch.setattr(backend.running_cluster, "do", do)
