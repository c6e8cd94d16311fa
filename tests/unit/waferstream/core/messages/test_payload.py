"""Several tensors in one payload, and back."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from waferstream.core.messages.payload import byte_ranges, payload_bytes, unpack
from waferstream.core.program.program import BYTES_PER_ELEMENT, TensorSpec

shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)


def specs(dtypes: SearchStrategy[str]) -> SearchStrategy[list[TensorSpec]]:
    return st.lists(st.tuples(shapes, dtypes)).map(
        lambda pairs: [TensorSpec(f"t{i}", *pair) for i, pair in enumerate(pairs)]
    )


@given(specs(st.just("float32")))
def test_unpack_yields_every_element_once(one_dtype: list[TensorSpec]) -> None:
    """The views follow one another and share the payload's memory."""
    flat = torch.arange(sum(spec.num_elements for spec in one_dtype), dtype=torch.float32)
    views = list(unpack(flat, one_dtype))
    assert [tuple(view.shape) for view in views] == [spec.shape for spec in one_dtype]
    assert torch.equal(torch.cat([view.reshape(-1) for view in views] or [flat]), flat)
    for view in views:
        view.fill_(-1)
    assert (flat == -1).all()


@given(specs(st.sampled_from(list(BYTES_PER_ELEMENT))))
def test_byte_ranges_are_adjacent(mixed: list[TensorSpec]) -> None:
    """No gap, no overlap, and together the size of the payload."""
    stop = 0
    for spec, start, end in byte_ranges(mixed):
        assert (start, end - start) == (stop, spec.num_bytes)
        stop = end
    assert stop == payload_bytes(mixed)
