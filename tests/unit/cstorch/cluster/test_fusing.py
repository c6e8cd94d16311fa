"""Which kernels ``auto`` compiles, and that a run which goes on keeps to them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import torch

import cstorch
from appliance.spec import RuntimeSpec
from cstorch.cluster import fusing
from cstorch.cluster.fusing import CHOICES, Choice, Fusing
from tests.support.programs.cstorch_program import executor, losses, running_backend, training_step
from tests.support.programs.plain_steps import backward_step, mean_square
from tests.support.roles.local_machine import FP32
from tests.support.runs.tiny_training import Shape
from waferstream.checkpoint.reader import Reader
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.compiler.compiled import Compiled
from waferstream.compiler.fusion.cache import Entry
from waferstream.core.program.fused import FusedKernel
from waferstream.core.roles.installation import Installation

FASTER, SLOWER = (Entry((), FusedKernel("", (), b"", ""), "", 1.0, s) for s in (0.5, 1.5))
SHORT_RUN, LONG_RUN = 1, 10**15


@dataclass(frozen=True)
class Planned:
    """What is installed, as far as kernels are told to it."""

    fused: tuple[FusedKernel | None, ...] = ()
    short: None = None


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
    request = CompileRequest(FP32, 4, 2, "test")
    inputs = [("x", torch.zeros(4, 8))]
    return compile_step(backward_step(model, mean_square), model, inputs, request)[0]


def chosen(
    compiled: Compiled,
    monkeypatch: pytest.MonkeyPatch,
    num_steps: int,
    began_with: Choice | None = None,
    code: str = "auto",
) -> Choice:
    """Return the choice where every other kernel is faster compiled."""
    count = len(compiled.kernels)

    class Known:
        def __init__(self, *_: Any) -> None:
            pass

        def finish(self) -> list[list[Entry]]:
            return [([FASTER, SLOWER] * count)[:count]]

        def close(self) -> None:
            pass

    monkeypatch.setattr(fusing, "Fusion", Known)
    runtime = RuntimeSpec.model_validate({"engine": {"kernels": code}})
    kernels = Fusing(compiled, runtime, Path(), num_steps, began_with)
    installation = kernels.finish(cast("Installation", Planned()))
    ran = "".join("e" if kernel is None else "c" for kernel in installation.fused)
    assert kernels.choice == [ran or "e" * count]
    return kernels.choice


def test_auto_takes_what_the_run_began_with(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the length of the run and the times."""
    count = len(compiled.kernels)
    eager, other = ["e" * count], [("ec" * count)[:count]]
    assert chosen(compiled, monkeypatch, SHORT_RUN) == eager
    assert chosen(compiled, monkeypatch, LONG_RUN) == [("ce" * count)[:count]]
    assert chosen(compiled, monkeypatch, LONG_RUN, eager) == eager
    assert chosen(compiled, monkeypatch, SHORT_RUN, other) == other
    assert chosen(compiled, monkeypatch, SHORT_RUN, eager, "compiled") == ["c" * count]


def test_kernels_of_another_program_are_chosen_anew(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    count = len(compiled.kernels)
    assert chosen(compiled, monkeypatch, LONG_RUN, ["c"]) == [("ce" * count)[:count]]
    assert [r.levelno for r in caplog.records].count(logging.WARNING) == 1


def test_checkpoint_has_the_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is too short begins with eager kernels; a longer one goes on with them."""
    shape = Shape(engine={"kernels": "auto"})
    with running_backend(shape) as backend:
        losses(training_step(backend, momentum=0.9), executor(1))
        cstorch.save({"model": {}, "optimizer": {}, "global_step": 1}, tmp_path / "saved.mdl")
    ((kind, choice),) = Reader(tmp_path / "saved.mdl").objects[CHOICES].items()
    assert kind == "train"
    assert {*choice[0]} == {"e"}
    monkeypatch.setattr(fusing, "LONG_RUN_S", 0.0)
    monkeypatch.setattr(fusing, "Fusion", None)
    with running_backend(shape) as backend:
        backend.restore(tmp_path / "saved.mdl")
        losses(training_step(backend, momentum=0.9), executor(1))
