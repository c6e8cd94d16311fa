"""Programs as data: sizes, and the micro-batches of a batch."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.programs.small_programs import program, segment
from waferstream.core.program.micro_batches import Cut
from waferstream.core.program.program import TensorSpec


@pytest.mark.parametrize(
    ("shape", "dtype", "num_bytes"),
    [((2, 3), "float32", 24), ((), "int64", 8), ((4, 0), "bfloat16", 0), ((5,), "bool", 5)],
)
def test_tensor_spec_num_bytes(shape: tuple[int, ...], dtype: str, num_bytes: int) -> None:
    """Elements times bytes; a scalar has one element, an empty shape none."""
    assert TensorSpec("x", shape, dtype).num_bytes == num_bytes


@given(st.integers(1, 200), st.integers(1, 200))
def test_rows_of_micro_batches_are_those_of_tensor_split(batch_size: int, count: int) -> None:
    """The rows, the shapes of the inputs, and the weights in a mean over samples."""
    cut = Cut(batch_size, min(count, batch_size))
    tiny = replace(
        program(),
        inputs=(TensorSpec("x", (cut.size, 3), "float32"),),
        micro_batch_size=cut.size,
        num_micro_batches=cut.num_micro_batches,
        num_short=cut.num_short,
    )
    parts = torch.arange(batch_size).tensor_split(cut.num_micro_batches)
    for index, part in enumerate(parts):
        assert torch.arange(batch_size)[tiny.rows_of(index)].equal(part)
        assert tiny.inputs_of(index)[0].shape == (len(part), 3)
        assert tiny.sample_weights[index] == len(part) * len(parts) / batch_size
    assert tiny.cut == cut


def test_weights_of_a_sum_make_up_for_the_mean_of_results() -> None:
    """Micro-batches count in full in it, and by their samples in a mean."""
    uneven = replace(program(), micro_batch_size=2, num_micro_batches=2, num_short=1, totals=(1,))
    assert uneven.weights_of(0) == (4 / 3, 2 / 3)
    assert uneven.weights_of(1) == (2.0, 2.0)


def test_program_trained_is_in_master_order() -> None:
    """It is the order of the norm's summands, and independent of the order of gradients."""
    tiny = program()
    assert tiny.trained == ("first.weight", "first.bias", "last.weight")
    frozen = program(segments=(segment(0, weights=("first.weight",)),))
    assert frozen.trained == ()


def test_program_batch_size_counts_all_micro_batches() -> None:
    """Global batch = micro-batch size times their number."""
    assert program().batch_size == 2 * 5
