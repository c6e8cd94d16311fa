"""Programs as data: sizes, who owns which parameter, and what travels as one piece."""

from collections import Counter
from dataclasses import replace
from operator import attrgetter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.small_programs import program, segment
from wsc.core.micro_batches import Cut
from wsc.core.program import BYTES_PER_ELEMENT, Footprint, TensorSpec, assign_servers, plan_streams

specs = st.lists(st.integers(1, 1000), min_size=1, max_size=30).map(
    lambda sizes: [TensorSpec(f"p{i}", (size,), "float32") for i, size in enumerate(sizes)]
)


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


def test_weights_of_a_sum_are_one() -> None:
    """Micro-batches count alike in it, and by their samples in a mean."""
    uneven = replace(program(), micro_batch_size=2, num_micro_batches=2, num_short=1, totals=(1,))
    assert uneven.weights_of(0) == (4 / 3, 2 / 3)
    assert uneven.weights_of(1) == (1.0, 1.0)


def test_footprint_covering_is_enough_for_both() -> None:
    """It takes the larger fixed part and the larger part per sample."""
    flat, steep = Footprint(100, 1), Footprint(10, 7)
    assert flat.covering(steep) == steep.covering(flat) == Footprint(100, 7)


@given(specs, st.integers(1, 8))
def test_assign_servers_gives_each_parameter_one_owner(
    parameters: list[TensorSpec], num_servers: int
) -> None:
    """The assignment covers all parameters, names existing servers only, and does not depend on the order."""
    owner = assign_servers(parameters, num_servers)
    assert owner.keys() == {spec.name for spec in parameters}
    assert set(owner.values()) <= set(range(num_servers))
    assert assign_servers(parameters[::-1], num_servers) == owner


@given(specs, st.integers(1, 8))
def test_assign_servers_balances_the_load(parameters: list[TensorSpec], num_servers: int) -> None:
    """No two servers differ by more than the largest parameter."""
    load = Counter(dict.fromkeys(range(num_servers), 0))
    for spec in parameters:
        load[assign_servers(parameters, num_servers)[spec.name]] += spec.num_elements
    largest = max(spec.num_elements for spec in parameters)
    assert max(load.values()) - min(load.values()) <= largest


@pytest.mark.parametrize("num_servers", [1, 2, 3, 7])
def test_plan_streams_cuts_segments_by_server(num_servers: int) -> None:
    """Each segment's weights and gradients travel whole, each from or to its owner."""
    tiny = program()
    owner = assign_servers(tiny.parameters, num_servers)
    plan = plan_streams(tiny, num_servers)
    for buckets, wanted in (
        (plan.weights, attrgetter("weights")),
        (plan.gradients, attrgetter("gradients")),
    ):
        assert [bucket.index for bucket in buckets] == list(range(len(buckets)))
        for bucket in buckets:
            assert {owner[name] for name in bucket.names} == {bucket.server}
        for one in tiny.segments:
            sent = [name for s in buckets if s.segment == one.index for name in s.names]
            assert Counter(sent) == Counter(wanted(one))


def test_plan_streams_sends_a_shared_weight_twice() -> None:
    """Nothing is kept on the wafer for a later segment."""
    plan = plan_streams(program(), 1)
    assert sum("first.weight" in bucket.names for bucket in plan.weights) == 2
    assert sum("first.weight" in bucket.names for bucket in plan.gradients) == 1


def test_bucket_num_bytes_follows_the_stream_dtype() -> None:
    """The bytes on the wire are those of the dtype, not those of the master."""
    plan = plan_streams(program("bfloat16"), 2)
    for bucket in plan.weights:
        assert bucket.num_bytes == bucket.num_elements * BYTES_PER_ELEMENT["bfloat16"]
    for bucket in plan.gradients:
        assert bucket.num_bytes == bucket.num_elements * 4


def test_bucket_specs_have_the_dtype_that_travels() -> None:
    """Shapes of the parameters, in the order of the segment, and their sum in bytes."""
    bucket = plan_streams(program("bfloat16"), 1).weights[0]
    assert bucket.specs == (
        TensorSpec("first.weight", (4, 4), "bfloat16"),
        TensorSpec("first.bias", (4,), "bfloat16"),
    )
    assert bucket.names == ("first.weight", "first.bias")
    assert (bucket.num_elements, bucket.num_bytes) == (20, 40)


def test_program_trained_is_in_master_order() -> None:
    """It is the order of the norm's summands, and independent of the order of gradients."""
    tiny = program()
    assert tiny.trained == ("first.weight", "first.bias", "last.weight")
    frozen = program(segments=(segment(0, weights=("first.weight",)),))
    assert frozen.trained == ()


def test_program_batch_size_counts_all_micro_batches() -> None:
    """Global batch = micro-batch size times their number."""
    assert program().batch_size == 2 * 5
