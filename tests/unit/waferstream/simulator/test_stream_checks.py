"""The no-stall condition of sparse steps, and the shares of zeros that are its remedies."""

from __future__ import annotations

from functools import cache

import pytest

from tests.support.programs.small_programs import segment
from waferstream.core.program.program import Program, ProgramKind, TensorSpec
from waferstream.core.program.segment import OpWork
from waferstream.core.program.stream_plan import plan_streams
from waferstream.machine.densities import StepSparsity
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.stalls import StreamCheck, check_streams
from waferstream.simulator.costed_program import CostedProgram
from waferstream.simulator.stream_checks import TRIED_SHARES, checked_streams

WIDTH = 4096
NAMES = ("first", "last")


def machine(link_bytes_per_s: int) -> MachineSpec:
    """Return a CS-2 cluster with links of a bandwidth."""
    return MachineSpec.model_validate({"swarmx": {"link_bandwidth_bytes_per_s": link_bytes_per_s}})


def layers(tokens: int) -> Program:
    """Return a step with two equal products, forward and backward."""
    product = OpWork("mm", "matmul", 1, (1, tokens, WIDTH, WIDTH), streams=True)
    gradient = OpWork("mm", "matmul", 1, (1, WIDTH, tokens, WIDTH))
    parameters = tuple(TensorSpec(name, (WIDTH, WIDTH), "float32") for name in NAMES)
    return Program(
        ProgramKind.TRAIN, "cs_0", parameters, "bfloat16", (), 1,
        (
            segment(0, weights=("first",), work=(product,)),
            segment(1, weights=("last",), work=(product,)),
            segment(2, "backward", weights=("last",), gradients=("last",), work=(product, gradient)),
            segment(3, "backward", gradients=("first",), work=(gradient,)),
        ),
        25, num_micro_batches=1,
    )  # fmt: skip


def costed(tokens: int, density: float) -> CostedProgram:
    """Return a step whose weights all have a density."""
    program = layers(tokens)
    densities = dict.fromkeys(NAMES, density)
    return CostedProgram.of(
        program, plan_streams(program, 2), MachineSpec(), sparsity=StepSparsity(densities)
    )


@cache
def plain(tokens: int, density: float, link_bytes_per_s: int) -> tuple[StreamCheck, ...]:
    """Return the checks of a step without remedies by zeros."""
    step = costed(tokens, density)
    return check_streams(
        step.program, step.schedule, step.costs, machine(link_bytes_per_s), step.densities
    )


def test_checks_state_density_and_bytes_of_non_zeros() -> None:
    dense, sparse = plain(50_000, 1.0, 10**11), plain(50_000, 0.1, 10**11)
    assert [check.density for check in sparse] == [0.1] * 4
    assert all(
        few.stream_bytes < 0.2 * all_.stream_bytes for few, all_ in zip(sparse, dense, strict=True)
    )


@pytest.mark.parametrize(
    ("density", "link_bytes_per_s", "remedy"),
    [
        (1.0, 20 * 10**9, "zeros"),  # the fixed time does not shrink
        (0.1, 2 * 10**9, "zeros"),
        (0.1, 2 * 10**8, "none"),
    ],
)
def test_share_of_zeros_that_is_stated_would_do(
    density: float, link_bytes_per_s: int, remedy: str
) -> None:
    """A step costed at the stated density does not stall there; no tried one is nearer."""
    found = set()
    tried = [round(1 - share, 2) for share in TRIED_SHARES]
    for tokens in (2_000, 40_000):
        checks = checked_streams(costed(tokens, density), machine(link_bytes_per_s))
        for index, check in enumerate(checks):
            would_do = [
                each for each in tried if plain(tokens, each, link_bytes_per_s)[index].holds
            ]
            nearest = min(would_do, key=lambda each: abs(each - density), default=None)
            assert check.sufficient_density == (None if check.holds else nearest)
            if not check.holds:
                found.add("none" if nearest is None else "zeros")
    assert found == {remedy}


def test_a_step_that_does_not_stall_is_not_tried() -> None:
    checks = checked_streams(costed(2_000, 0.5), MachineSpec())
    assert all(check.holds and check.sufficient_density is None for check in checks)
