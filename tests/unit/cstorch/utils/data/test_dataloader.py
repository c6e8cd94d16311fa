"""A DataLoader is a recipe: it is followed where the data are needed."""

import pickle

import pytest
import torch

from cstorch.utils.data import DataLoader
from tests.support.errors import raises
from wsc.core.errors import DataError
from wsc.core.loading import Loading


def numbers(count, *, start=0):
    return list(range(start, start + count))


def test_the_recipe_is_followed_on_every_worker():
    """Each call makes a loader of its own, with the arguments that were given."""
    loader = DataLoader(numbers, 3, start=5)
    assert loader.source() == [5, 6, 7]
    assert loader.source() is not loader.source()
    assert pickle.loads(pickle.dumps(loader.source))() == [5, 6, 7]


def test_here_it_is_followed_once():
    """And not before somebody asks."""
    made = []
    loader = DataLoader(lambda: made.append(1) or numbers(4))
    assert made == []
    assert len(loader) == 4
    assert loader.local == [0, 1, 2, 3]
    assert made == [1]


def test_the_first_batch_is_read_once():
    """A generator gives it to every loop."""
    loader = DataLoader(lambda: iter([torch.zeros(2), torch.ones(2)]))
    assert loader.first is loader.first
    assert loader.first[0].tolist() == [0, 0]


def test_a_loader_itself_is_refused():
    """It could not be built on the workers."""
    with raises(DataError, "input-fn-not-callable"):
        DataLoader(numbers(3))


def test_a_loader_without_a_length_has_none():
    """As Python says it."""
    with pytest.raises(TypeError):
        len(DataLoader(lambda: iter(numbers(3))))


def test_a_loader_says_who_loads_on_the_emulated_machine():
    """Itself, or by the processes of a torch DataLoader; of any other iterable nothing is known."""

    class Telling(list):
        loading = Loading("csv", num_workers=4)

    def torch_loader():
        return torch.utils.data.DataLoader([1, 2], num_workers=1)

    assert DataLoader(Telling).loading == Loading("csv", num_workers=4)
    assert DataLoader(torch_loader).loading == Loading(num_workers=1)
    assert DataLoader(numbers, 3).loading == Loading()
