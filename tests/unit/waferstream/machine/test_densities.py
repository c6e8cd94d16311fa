"""Sparse weights on the emulated machine: streams and work shrink with density, dense ones do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memoryx.sparsity.step_sparsity import sparsity_by_optimizer
from tests.support.plain_torch.plain_sgd import plain_sgd
from tests.support.programs.small_programs import segment
from waferstream.core.program.program import Program, ProgramKind, TensorSpec
from waferstream.core.program.segment import OpWork
from waferstream.core.program.stream_plan import plan_streams
from waferstream.core.sparsity.levels import Constant, Exp
from waferstream.core.sparsity.nonzero_bytes import expected_bytes
from waferstream.core.sparsity.spec import UpdateSteps, WeightSparsity
from waferstream.machine.cost import SegmentCost, segment_costs
from waferstream.machine.densities import Densities, StepSparsity, op_densities, sparse_plan
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.kernels import Grid
from waferstream.machine.kernels.streaming import weight_streaming
from waferstream.simulator.cluster_timing import ClusterTiming
from waferstream.simulator.costed_program import CostedProgram

MACHINE = MachineSpec()
WIDTH, TOKENS = 4096, 50_000
SQUARE = OpWork("mm", "matmul", 1, (1, TOKENS, WIDTH, WIDTH), streams=True)
WIDE = OpWork("mm", "matmul", 1, (1, TOKENS, WIDTH, 4 * WIDTH), streams=True)
NORM = OpWork("native_layer_norm", "norm", 1, (1, TOKENS, WIDTH), streams=True)
SCALE = OpWork("mul", "elementwise", 1, (2, TOKENS, WIDTH), streams=True)  # reads a weight, too
NAMES = ("q", "k", "up")
SQUARE_GRADIENT = OpWork("mm", "matmul", 1, (1, WIDTH, TOKENS, WIDTH))
WIDE_GRADIENT = OpWork("mm", "matmul", 1, (1, 4 * WIDTH, TOKENS, WIDTH))


def layer() -> Program:
    """Return a step with two square products, a wide one and a norm."""
    shapes = {"q": (WIDTH, WIDTH), "k": (WIDTH, WIDTH), "up": (4 * WIDTH, WIDTH), "bias": (WIDTH,)}
    parameters = tuple(TensorSpec(name, shape, "float32") for name, shape in shapes.items())
    forward = segment(0, weights=tuple(shapes), work=(SQUARE, SQUARE, WIDE, NORM, SCALE))
    backward = segment(1, "backward", weights=NAMES, gradients=tuple(shapes), work=(SQUARE, WIDE))
    return Program(
        ProgramKind.TRAIN,
        "cs_0",
        parameters,
        "bfloat16",
        (),
        1,
        (forward, backward),
        25,
        num_micro_batches=1,
    )


def trained_layer() -> Program:
    """Return the same step with products that compute gradients of weights."""
    forward, backward = layer().segments
    work = (*backward.work, SQUARE_GRADIENT, SQUARE_GRADIENT, WIDE_GRADIENT)
    return replace(layer(), segments=(forward, replace(backward, work=work)))


def costs(densities: Densities) -> list[SegmentCost]:
    return segment_costs(layer(), MACHINE.system, densities)


def step_ps(densities: Densities) -> int:
    program = layer()
    timing = ClusterTiming(MACHINE, 1, 1)
    costed = CostedProgram.of(
        program, plan_streams(program, 1), MACHINE, sparsity=StepSparsity(densities)
    )
    timing.load_program(costed)
    return timing.step(ProgramKind.TRAIN, 1).duration_ps


def test_density_1_changes_no_picosecond() -> None:
    all_dense = dict.fromkeys(NAMES, 1.0)
    assert costs(all_dense) == costs({}) == segment_costs(layer(), MACHINE.system)
    assert step_ps(all_dense) == step_ps({})
    trained = trained_layer()
    dense = segment_costs(trained, MACHINE.system)
    assert segment_costs(trained, MACHINE.system, all_dense, all_dense) == dense
    plan = plan_streams(layer(), 2)
    assert sparse_plan(plan, StepSparsity()) is plan
    assert sparse_plan(plan, StepSparsity(all_dense)) == plan


def test_step_gets_shorter_with_every_zero() -> None:
    durations = [step_ps(dict.fromkeys(NAMES, d)) for d in (1.0, 0.75, 0.5, 0.25, 0.1, 0.05)]
    assert durations == sorted(durations, reverse=True)
    assert 3 < durations[0] / durations[4] < 10  # norm, gradients and segments' fixed time stay


def test_work_is_that_of_the_closed_form() -> None:
    """Ops of a segment have the density of the weights of their size, on average."""
    forward = layer().segments[0]
    assert op_densities(forward, layer(), {"q": 0.1}) == (0.55, 0.55, 1.0, 1.0, 1.0)
    assert op_densities(forward, layer(), {"bias": 0.5}) == (1.0,) * 5
    assert op_densities(forward, layer(), {"other": 0.5}) == ()
    grid = Grid(MACHINE.system.fabric, 200)
    dense, sparse = (
        weight_streaming(grid, TOKENS, WIDTH, WIDTH, "bfloat16", d).total_cycles for d in (1.0, 0.1)
    )
    assert 4 < dense / sparse < 10  # the ring and PEs that wait for others stay


def test_gradients_have_the_density_of_what_leaves() -> None:
    """Where the weight streams to the segment, since its index tells which gradients are kept."""
    program, sparse = trained_layer(), {"q": 0.5, "up": 0.25}
    backward = program.segments[1]
    assert op_densities(backward, program, sparse) == (0.75, 0.25, 0.75, 0.75, 0.25)
    whole = op_densities(backward, program, sparse, {"q": 0.5, "up": 1.0})
    assert whole == (0.75, 0.25, 0.75, 0.75, 1.0)
    without_up = replace(backward, weights=("q", "k"))
    assert op_densities(without_up, program, sparse) == (0.75, 1.0, 0.75, 0.75, 1.0)


def test_step_whose_mask_changes_computes_whole_gradients() -> None:
    """The next step without a change takes as long as the one before."""
    program, densities = trained_layer(), dict.fromkeys(NAMES, 0.25)
    steady, changing = (
        StepSparsity(densities, dict.fromkeys(NAMES, share)) for share in (0.0, 1.0)
    )
    plan = plan_streams(program, 1)
    costed = CostedProgram.of(program, plan, MACHINE, sparsity=steady)
    changed = costed.with_sparsity(changing, MACHINE)
    assert changed.costs == segment_costs(program, MACHINE.system, densities, {})
    assert changed.costs[1].compute_ps > costed.costs[1].compute_ps
    assert changed.with_sparsity(steady, MACHINE).costs == costed.costs


def test_streams_have_the_bytes_of_values_and_index() -> None:
    plan = sparse_plan(plan_streams(layer(), 1), StepSparsity({"up": 0.1}))
    others = (2 * WIDTH * WIDTH + WIDTH) * 2
    assert plan.weights[0].num_bytes == others + expected_bytes(4 * WIDTH * WIDTH, 0.1, 2)
    (gradients,) = plan.gradients
    kept = round(0.1 * 4 * WIDTH * WIDTH)
    assert gradients.num_bytes == (2 * WIDTH * WIDTH + WIDTH + kept) * 4
    assert gradients.num_elements == 2 * WIDTH * WIDTH + WIDTH + kept
    nearly_dense = sparse_plan(plan_streams(layer(), 1), StepSparsity({"up": 0.99}))
    assert nearly_dense.weights == plan_streams(layer(), 1).weights


@pytest.mark.parametrize(
    ("changes", "earlier", "density"),
    [
        ({}, 0, 0.25),
        ({"level": None, "init": "from_zeros"}, 0, None),
        ({"update": UpdateSteps(freq=10, start=10)}, 9, None),
        ({"update": UpdateSteps(freq=10, start=10)}, 10, 0.25),
        ({"level": Exp(init=0.0, gamma=-0.1, final=1.0), "update": UpdateSteps(freq=10)}, 19, 0.36),
    ],
)  # fmt: skip
def test_density_is_that_of_the_last_change(
    changes: dict[str, object], earlier: int, density: float | None
) -> None:
    made = {"algorithm": "gmp", "level": Constant(value=0.75), **changes}
    spec = WeightSparsity("q", **made)  # type: ignore[arg-type]
    optimizer = replace(plain_sgd(NAMES, 0.1, sparsity=(spec,)), earlier_updates=earlier)
    found = sparsity_by_optimizer(optimizer, layer().parameter).densities
    assert found == ({} if density is None else {"q": pytest.approx(density, abs=0.01)})
