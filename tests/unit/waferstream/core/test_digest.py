"""The weights digest depends on names, shapes and bits, and on nothing else."""

from collections.abc import Iterable

import numpy as np
import pytest

from waferstream.core.digest import weights_digest

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.ones(3, dtype=np.float32)
DIGEST = weights_digest([("a", A), ("b", B)])


@pytest.mark.parametrize(
    "same",
    [
        [("b", B), ("a", A)],
        [("a", np.asfortranarray(A)), ("b", B)],
        [("a", A.astype(">f4")), ("b", B)],
        iter([("a", A), ("b", B)]),
    ],
    ids=["other order", "other strides", "other byte order", "iterator"],
)
def test_digest_ignores_order_and_memory_layout(same: Iterable[tuple[str, np.ndarray]]) -> None:
    """Order of arrival and layout in memory do not matter."""
    assert weights_digest(same) == DIGEST


@pytest.mark.parametrize(
    "other",
    [
        [("a", A)],
        [("a", A), ("c", B)],
        [("a", A.reshape(3, 2)), ("b", B)],
        [("a", np.nextafter(A, np.inf)), ("b", B)],
        [("a", A * -0.0), ("b", B)],
        [("a", B), ("b", A)],
    ],
    ids=["one missing", "another name", "another shape", "one bit", "zeros", "swapped"],
)
def test_digest_covers_names_shapes_and_bits(other: list[tuple[str, np.ndarray]]) -> None:
    """Names, shapes and every bit count."""
    assert weights_digest(other) != DIGEST


def test_digest_distinguishes_negative_zero() -> None:
    """Equal numbers with other bits are other weights."""
    zero = np.zeros(1, dtype=np.float32)
    assert weights_digest([("a", zero)]) != weights_digest([("a", -zero)])
