"""Keyed random kernels have the distributions of torch, and draw by key and position."""

from typing import Any

import pytest
import torch

from waferstream.numerics import keyed_random

X = torch.full((200, 50), 0.3)
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "native_dropout": (X, 0.25, True),
    "multinomial": (X, 8),
    "normal": (X, 2.0),
    "rand": ((200, 50),),
    "randint": (3, 90, (200, 50)),
    "randn": ((200, 50),),
    "randperm": (1000,),
    "rrelu_with_noise": (-X, torch.empty_like(X), 0.1, 0.3, True),
}


@pytest.mark.parametrize("name", keyed_random.KERNELS)
def test_keyed_draws_depend_on_key_and_position(name: str) -> None:
    """The same pair gives the same bits; another key or position gives others."""
    kernel = keyed_random.KERNELS[name]

    def drawn(key: int, position: int) -> torch.Tensor:
        result = kernel(key, position, *ARGUMENTS.get(name, (X.clone(),)))
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


def test_keyed_draws_of_a_size_have_their_distribution() -> None:
    """Uniform and normal numbers, integers, permutations, choices, waiting times."""
    size = (200, 50)
    exponential = keyed_random.exponential_(1, 0, torch.empty(size), 2.0)
    for drawn, mean, variance in (
        (keyed_random.rand(1, 0, size), 0.5, 1 / 12),
        (keyed_random.randn(1, 0, size), 0.0, 1.0),
        (keyed_random.normal(1, 0, 3.0, 0.5, size), 3.0, 0.25),
        (keyed_random.normal(1, 0, X, 0.5), 0.3, 0.25),
        (keyed_random.normal_(1, 0, torch.empty(size), 3.0, 0.5), 3.0, 0.25),
        (keyed_random.uniform_(1, 0, torch.empty(size), 1.0, 3.0), 2.0, 4 / 12),
        (exponential, 0.5, 0.25),
    ):
        assert abs(drawn.mean() - mean) < 0.05
        assert abs(drawn.var() - variance) < 0.05
    assert set(keyed_random.randint(1, 0, 3, size).unique().tolist()) == {0, 1, 2}
    assert set(keyed_random.randint(1, 0, 3, 5, size).unique().tolist()) == {3, 4}
    assert sorted(keyed_random.randperm(1, 0, 9).tolist()) == list(range(9))
    chosen = keyed_random.multinomial(1, 0, torch.tensor([0.0, 1.0, 2.0]), 2)
    assert sorted(chosen.tolist()) == [1, 2]


def test_rrelu_with_noise_writes_the_slopes() -> None:
    """Backward reads them; positive values have slope 1."""
    x, noise = torch.tensor([-2.0, 3.0]), torch.empty(2)
    sloped = keyed_random.rrelu_with_noise(1, 0, x, noise, 0.1, 0.3, True)
    assert torch.equal(sloped, x * noise)
    assert 0.1 <= noise[0] <= 0.3
    assert noise[1] == 1


def test_ones_are_those_of_splitmix64() -> None:
    """The published sequence from key 0, low half of each word first, whatever the layout."""
    words = (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F)
    halves = [half for word in words for half in (word & 0xFFFFFFFF, word >> 32)]
    signed = [half - (1 << 32) if half >> 31 else half for half in halves]
    for p in (0.0, 0.1, 0.5, 0.9, 1.0):
        expected = [float(half < round(p * 2**32) - 2**31) for half in signed]
        for x in (torch.empty(2, 3), torch.empty(3, 2).T):
            found = keyed_random._draw_ones(x, 0, p)
            assert found is x
            assert found.flatten().tolist() == expected


@pytest.mark.parametrize("p", [-0.1, 1.5, float("nan")])
def test_what_is_no_probability_is_refused(p: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        keyed_random.bernoulli_(1, 0, X.clone(), p)


def test_ones_do_not_depend_on_the_pieces_in_which_they_are_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A device draws many at a time, the processor what fits into its cache."""
    whole = keyed_random.bernoulli_(7, 3, torch.empty(1001), 0.3)
    monkeypatch.setattr(keyed_random, "_PIECE", 64)
    assert torch.equal(whole, keyed_random.bernoulli_(7, 3, torch.empty(1001), 0.3))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU of CUDA")
@pytest.mark.parametrize("name", ["native_dropout", "bernoulli_", "normal_", "rand_like"])
def test_gpu_draws_what_the_processor_draws(name: str) -> None:
    """The same key gives the same bits there."""
    found = []
    for device in ("cpu", "cuda"):
        x = torch.ones(200, 50, device=device)
        drawn = keyed_random.KERNELS[name](5, 7, x, *ARGUMENTS.get(name, (x,))[1:])
        found.append((drawn[0] if isinstance(drawn, tuple) else drawn).cpu())
    assert torch.equal(*found)
