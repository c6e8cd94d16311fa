"""Every op kind has a closed form, and every captured op of a model costs cycles.

Most ops have their test where they are compiled: those of the zoo's models, with dropout, in
tests/unit/modelzoo/models/test_every_model.py, those of torch.nn in tests/parity/test_torch_nn.py.
"""

from __future__ import annotations

from tests.support.models.tiny_models import SIZES, TINY_MODELS
from tests.support.timing.op_costs import check_costs
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.compiler.ops import KIND_OF
from waferstream.machine.kernels.op_costs import COST_FUNCTIONS
from waferstream.numerics.precision import StreamPrecision
from waferstream.workload.models import training_example


def test_every_op_kind_has_a_cost_function() -> None:
    """And no cost function is left of a kind that no op has."""
    assert COST_FUNCTIONS.keys() == set(KIND_OF.values())


def test_every_op_of_attention_without_dropout_costs_cycles() -> None:
    """Forward and backward; only views cost nothing."""
    model = {"name": "bert/token_classifier", **TINY_MODELS["bert/token_classifier"]}
    example = training_example(SIZES | model | {"num_hidden_layers": 1}, micro_batch_size=2)
    request = CompileRequest(
        StreamPrecision(), micro_batch_size=2, num_micro_batches=1, target="test"
    )
    compiled, _ = compile_step(example.step, example.model, example.inputs, request)
    ops = {work.op for segment in compiled.program.segments for work in segment.work}
    assert "_scaled_dot_product_flash_attention_for_cpu" in ops
    check_costs(compiled.program)
