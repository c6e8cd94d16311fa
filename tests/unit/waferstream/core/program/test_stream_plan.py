"""The stream plan: who owns which parameter, and what travels as one piece."""

from collections import Counter
from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.programs.small_programs import program
from waferstream.core.program.program import BYTES_PER_ELEMENT, TensorSpec
from waferstream.core.program.stream_plan import assign_servers, plan_streams

specs = st.lists(st.integers(1, 1000), min_size=1, max_size=30).map(
    lambda sizes: [TensorSpec(f"p{i}", (size,), "float32") for i, size in enumerate(sizes)]
)


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
