"""Every op kind has a closed form, and every captured op of a model costs cycles.

The ops of torch.nn have their test where they are compiled, in tests/parity/test_torch_nn.py.
"""

from __future__ import annotations

import pytest

from modelzoo.models.registry import training_example
from tests.support.op_costs import check_costs
from tests.support.tiny_models import SIZES, TINY_MODELS
from timing.kernels.op_costs import COST_FUNCTIONS
from wsc.compiler.compile import CompileRequest, compile_step
from wsc.compiler.ops import KIND_OF
from wsc.core.program.program import Program
from wsc.numerics.precision import StreamPrecision


def captured(name: str) -> Program:
    """Return the training step of a model with one layer, since all of its layers are alike."""
    config = {"name": name, **SIZES, **TINY_MODELS[name], "num_hidden_layers": 1}
    example = training_example(config, micro_batch_size=2)
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
