"""Keyed random kernels have the distributions of torch, and draw by key and position."""

import pytest
import torch

from wsc.compiler import keyed_random

X = torch.full((200, 50), 0.3)


@pytest.mark.parametrize("name", keyed_random.KERNELS)
def test_keyed_draws_depend_on_key_and_position(name: str) -> None:
    """The same pair gives the same bits; another key or position gives others."""
    kernel = keyed_random.KERNELS[name]
    options = (0.25, True) if name == "native_dropout" else ()

    def drawn(key: int, position: int) -> torch.Tensor:
        result = kernel(key, position, X.clone(), *options)
        return result[0] if isinstance(result, tuple) else result

    assert torch.equal(drawn(1, 2), drawn(1, 2))
    assert not torch.equal(drawn(1, 2), drawn(2, 2))
    assert not torch.equal(drawn(1, 2), drawn(1, 3))


def test_native_dropout_keeps_the_mean() -> None:
    """Kept elements are scaled by 1 / (1 - p); the mask has them."""
    kept, mask = keyed_random.native_dropout(3, 0, X, 0.25, True)
    assert torch.equal(kept, X * mask * (1 / 0.75))
    assert abs(mask.float().mean() - 0.75) < 0.02


@pytest.mark.parametrize(("p", "train"), [(0.0, True), (0.5, False)])
def test_native_dropout_that_is_off_drops_nothing(p: float, train: bool) -> None:
    """Evaluation, or a rate of 0."""
    kept, mask = keyed_random.native_dropout(3, 0, X, p, train)
    assert torch.equal(kept, X)
    assert mask.all()


def test_native_dropout_with_rate_1_gives_zeros() -> None:
    """As in torch, without a division by the share that is kept."""
    kept, mask = keyed_random.native_dropout(3, 0, X, 1.0, True)
    assert torch.equal(kept, torch.zeros_like(X))
    assert not mask.any()


def test_keyed_draws_have_their_distribution() -> None:
    """Means and variances as torch documents them."""
    uniform = keyed_random.rand_like(1, 0, X)
    normal = keyed_random.randn_like(1, 0, X)
    ones = keyed_random.bernoulli_(1, 0, X.clone(), 0.7)
    by_element = keyed_random.bernoulli(1, 0, X)
    by_number = keyed_random.bernoulli(1, 0, X, 0.9)
    assert ((uniform >= 0) & (uniform < 1)).all()
    for drawn, mean in (
        (uniform, 0.5),
        (normal, 0.0),
        (ones, 0.7),
        (by_element, 0.3),
        (by_number, 0.9),
    ):
        assert abs(drawn.mean() - mean) < 0.05
    assert abs(normal.var() - 1) < 0.05
    assert set(ones.unique().tolist()) == {0.0, 1.0}
