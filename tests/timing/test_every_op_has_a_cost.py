"""Every op kind has a closed form, and every captured op of a model costs cycles."""

from __future__ import annotations

import pytest

from modelzoo.models.registry import training_example
from tests.support.local_machine import compile_model
from tests.support.tiny_models import SIZES, TINY_MODELS
from tests.support.torch_cases import Case
from tests.support.torch_function_cases import FUNCTION_CASES
from tests.support.torch_nn_cases import MODULE_CASES
from timing.hardware.fabric import WSE2
from timing.kernels import Grid
from timing.kernels.op_costs import COST_FUNCTIONS, op_cycles
from wsc.compiler.compile import CompileRequest, compile_step
from wsc.compiler.ops import KIND_OF
from wsc.core.program import Program
from wsc.numerics.precision import StreamPrecision


def captured(name: str) -> Program:
    example = training_example({"name": name, **SIZES, **TINY_MODELS[name]}, micro_batch_size=2)
    request = CompileRequest(
        StreamPrecision(), micro_batch_size=2, num_micro_batches=1, target="test"
    )
    compiled, _ = compile_step(example.step, example.model, example.inputs, request)
    return compiled.program


def test_every_op_kind_has_a_cost_function() -> None:
    """And no cost function is left of a kind that no op has."""
    assert COST_FUNCTIONS.keys() == set(KIND_OF.values())


@pytest.mark.parametrize("name", TINY_MODELS)
def test_every_op_of_a_training_step_costs_cycles(name: str) -> None:
    """Forward and backward; only views cost nothing."""
    check_costs(captured(name))


@pytest.mark.parametrize("case", [*MODULE_CASES, *FUNCTION_CASES], ids=lambda case: case.name)
def test_every_op_of_torch_nn_costs_cycles(case: Case) -> None:
    """Modules, losses and functions, forward and backward."""
    check_costs(compile_model(case.model(), case.inputs(), 2).program)


def check_costs(program: Program) -> None:
    """Check that every op of a training step costs cycles, except views."""
    grid = Grid.whole(WSE2)
    assert {segment.phase for segment in program.segments} == {"forward", "backward"}
    for segment in program.segments:
        assert segment.work or not segment.outputs
        for work in segment.work:
            cycles = op_cycles(grid, work, program.stream_dtype).total_cycles
            assert (cycles == 0) if work.kind == "view" else (cycles > 0), work
