"""A step at any micro-batch size from two captures."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.support.nightly import nightly
from tests.support.programs.plain_steps import backward_step
from waferstream.compiler.compile import CompileRequest, compile_recorded, compile_step
from waferstream.compiler.compiled import Compiled
from waferstream.compiler.derivation.recording import record
from waferstream.compiler.derivation.scale import ScalableProgram, capture_both
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.program.program import Program
from waferstream.core.program.segment import OpWork
from waferstream.numerics.precision import StreamPrecision


class Tiny(nn.Module):
    """Two linear layers with a norm and an attention between them."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.norm = nn.LayerNorm(16)
        self.down = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.norm(self.up(x)).unflatten(-1, (2, 8)).transpose(1, 2)
        mixed = nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        return self.down(mixed.transpose(1, 2).flatten(2)).square().mean()


class Image(nn.Module):
    """Convolutions, pooling, batch norm and resampling."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8, track_running_stats=False)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.up(nn.functional.max_pool2d(self.norm(self.down(x)).relu(), 2))
        return nn.functional.interpolate(x, scale_factor=2, mode="bilinear").square().mean()


def image_at(size: int, num_micro_batches: int = 4) -> Compiled:
    model = Image()
    request = CompileRequest(StreamPrecision(), size, num_micro_batches, "a test")
    inputs = [("x", torch.zeros(size, 3, 16, 12, dtype=torch.bfloat16))]
    return compile_step(backward_step(model), model, inputs, request)[0]


def compiled_at(size: int, num_micro_batches: int = 4) -> Compiled:
    model = Tiny()
    step = backward_step(model)
    request = CompileRequest(StreamPrecision(), size, num_micro_batches, "a test")
    return compile_step(step, model, [("x", torch.zeros(size, 5, 8))], request)[0]


@pytest.mark.parametrize("capture_at", [compiled_at, image_at])
@pytest.mark.parametrize("size", [1, 3, *nightly(8), 100])
def test_a_scaled_step_is_the_step_captured_at_that_size(
    size: int, capture_at: Callable[[int], Compiled]
) -> None:
    """Shapes, bytes and operations of every segment and op are those of a capture."""
    scaled = capture_both(capture_at).at(size, 4)
    captured = capture_at(size).program
    assert scaled.inputs == captured.inputs
    assert scaled.batch_size == captured.batch_size
    for ours, theirs in zip(scaled.segments, captured.segments, strict=True):
        assert ours.stash_footprint.of(size) == theirs.stash_footprint.of(size)
        priced = [[w for w in s.work if w.kind != "view"] for s in (ours, theirs)]
        assert priced[0] == priced[1]


@pytest.mark.parametrize("size", [1, 3, 8])
def test_samples_may_be_multiplied_with_each_other(size: int) -> None:
    """Scores of every sample with every other grow with the square of the samples."""

    def captured(samples: int) -> Compiled:
        model = nn.Linear(8, 16)
        step = backward_step(model, lambda embedded: (embedded @ embedded.t()).square().mean())
        request = CompileRequest(StreamPrecision(), samples, 1, "a test")
        return compile_step(step, model, [("x", torch.zeros(samples, 8))], request)[0]

    def products(program: Program) -> list[OpWork]:
        return [w for s in program.segments for w in s.work if w.kind == "matmul"]

    assert products(capture_both(captured).at(size, 1)) == products(captured(size).program)


def test_a_step_whose_ops_depend_on_the_size_is_refused() -> None:
    """Two captures with different ops have nothing between them."""
    twice = iter([compiled_at(2), _one_layer(4)])
    with pytest.raises(ApplianceCompilationError, match="depend on the micro-batch size"):
        capture_both(lambda _size: next(twice))


def _one_layer(size: int) -> Compiled:
    model = nn.Linear(8, 8)
    step = backward_step(model, torch.sum)
    request = CompileRequest(StreamPrecision(), size, 4, "a test")
    return compile_step(step, model, [("x", torch.zeros(size, 8))], request)[0]


class Biased(nn.Module):
    """Attention whose bias follows from positions, and a mean over the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Embedding(9, 2)
        self.project = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(5)
        bias = self.bias(places[:, None] - places + 4).permute(2, 0, 1)
        heads = self.project(x).unflatten(-1, (2, 4)).transpose(1, 2)
        scores = (heads @ heads.transpose(-1, -2) + bias).softmax(-1)
        mean = heads.mean(0)
        return ((scores @ heads) * mean).square().mean()


@pytest.mark.parametrize("for_all_sizes", [False, True])
def test_footprints_hold_for_every_size(for_all_sizes: bool) -> None:
    """Values of a fixed size do not grow, such as the gradient of a bias of positions."""

    def captured(size: int) -> Program:
        model = Biased()
        request = CompileRequest(StreamPrecision(), size, 1, "a test")
        inputs = [("x", torch.zeros(size, 5, 8))]
        if not for_all_sizes:
            return compile_step(backward_step(model), model, inputs, request)[0].program
        args = (backward_step(model), model, inputs, request.precision)
        recording = record(*args, for_all_sizes=True)
        return compile_recorded(recording, request)[0].program

    small, large, wanted = map(captured, (2, 4, 8))
    program = small if for_all_sizes else ScalableProgram.of(small, large).at(8, 4)
    for ours, theirs in zip(program.segments, wanted.segments, strict=True):
        assert [p.footprint.of(8) for p in ours.stash] == [p.footprint.of(8) for p in theirs.stash]
        # a single capture rounds what has a fixed size up to whole bytes per sample
        rounded = 0 if for_all_sizes else 8 - 1
        assert 0 <= theirs.working.of(8) - ours.working.of(8) <= rounded
