"""Hints for the vendor's compiler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.programs.kernels import run_kernels
from tests.support.programs.plain_steps import backward_step
from tests.support.roles.local_machine import FP32
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.compiler.compiled import Compiled
from waferstream_compat.annotations import (
    AnnotationMode,
    create_annotation,
    groups_annotater,
    kernel_annotater,
)


@dataclass
class Named(AnnotationMode.Config):
    name: str


def attribute(config: Named, is_backward: bool) -> AnnotationMode.Attribute:
    return AnnotationMode.Attribute("named", f"{config.name}.{is_backward}")


def double(x: int) -> int:
    return 2 * x


def test_hints_leave_a_function_as_it_is() -> None:
    hint = create_annotation(Named, attribute, name="a", enable_fwd=True, enable_bwd=False)
    assert hint(double) is double
    assert groups_annotater(None)(kernel_annotater("FAST")(double)) is double


def test_arguments_of_a_hint_are_checked() -> None:
    with pytest.raises(TypeError, match="nonsense"):
        create_annotation(Named, attribute, enable_fwd=True, enable_bwd=True, nonsense=1)


def recompute(kind: str, *, forward: bool = True) -> Callable[[Any], Any]:
    """Return the decorator of a region or a checkpoint, as public programs define it."""

    def of(config: Named, is_backward: bool) -> AnnotationMode.Attribute:
        return AnnotationMode.Attribute(kind, f"{config.name}.{is_backward}")

    return create_annotation(Named, of, name="a", enable_fwd=forward, enable_bwd=True)


class Layer(nn.Module):
    """A layer whose middle can be recomputed."""

    def __init__(self, region: Callable[[Any], Any], checkpoint: Callable[[Any], Any]) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)
        self.middle, self.shifted = region(self._middle), checkpoint(self._shifted)

    def _shifted(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(torch.dropout(x, 0.5, True))

    def _middle(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.shifted(x)) * torch.cos(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (B, 8) for (B, 8)."""
        out: torch.Tensor = self.down(self.middle(self.up(x)))
        return out


class Model(nn.Module):
    """Three equal layers and a loss."""

    def __init__(self, **marks: Callable[[Any], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        keep = {"region": lambda f: f, "checkpoint": lambda f: f}
        self.layers = nn.Sequential(*(Layer(**{**keep, **marks}) for _ in range(3)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean square."""
        out: torch.Tensor = self.layers(x).square().mean()
        return out


BATCH = {"x": torch.linspace(-1, 1, 32).view(4, 8)}


def compiled(model: nn.Module) -> Compiled:
    """Return the program of a training step in fp32."""
    request = CompileRequest(FP32, 4, 1, "test")
    found, _ = compile_step(backward_step(model), model, list(BATCH.items()), request)
    return found


def stashed(program: Compiled) -> int:
    """Return the bytes that the forward segment of the first layer keeps."""
    first = next(s for s in program.program.segments if s.layer == "layers.0")
    return sum(piece.footprint.of(4) for piece in first.stash)


REGION, CHECKPOINT = recompute("recompute_region"), recompute("recompute_ckpt")


def test_marked_region_is_recomputed_to_the_same_bits() -> None:
    """Its values need no memory until the backward pass; a checkpoint in it is kept."""
    plain, region = Model(), Model(region=REGION)
    both = Model(region=REGION, checkpoint=CHECKPOINT)
    programs = [compiled(model) for model in (plain, region, both)]
    most, least, between = map(stashed, programs)
    assert least < between < most
    runs = [run_kernels(program, plain, BATCH, key=5) for program in programs]
    for results, gradients in runs[1:]:
        assert torch.equal(results[0], runs[0][0][0])
        assert all(torch.equal(gradients[name], value) for name, value in runs[0][1].items())


def test_program_of_marked_regions_has_a_digest_of_its_own() -> None:
    """It does not depend on how often a function was called before."""
    digests = [
        compiled(Model(region=REGION)).program.digest,
        compiled(Model(region=REGION)).program.digest,
        compiled(Model()).program.digest,
    ]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    "marks", [{"checkpoint": CHECKPOINT}, {"region": recompute("recompute_region", forward=False)}]
)
def test_mark_without_a_forward_region_changes_nothing(marks: dict[str, Any]) -> None:
    """A checkpoint outside of a region is kept anyway."""
    assert stashed(compiled(Model(**marks))) == stashed(compiled(Model()))
