"""Global batches by step: asked for where the source can, read in order where it cannot."""

import itertools

import pytest
import torch

from appliance.batches import GlobalBatches, batch_leaves
from wsc.core.errors import DataError


def batch(number, rows=2):
    return {"x": torch.full((rows, 3), float(number)), "note": "text", "y": torch.zeros(rows)}


class RandomAccess:
    """Notes which batches it was asked for."""

    def __init__(self):
        self.asked = []

    def batch(self, step):
        self.asked.append(step)
        return batch(step)


class InOrder:
    """A loader that counts how often it was started."""

    def __init__(self, length):
        self.length = length
        self.started = 0

    def __iter__(self):
        self.started += 1
        return (batch(number) for number in range(self.length))


def read(source, batch_size=2):
    """The batches of an input function that returns this source."""
    return GlobalBatches(lambda: source, batch_size)


def values(batches, steps):
    return [batches.leaves(step)[0][0, 0].item() for step in steps]


def test_a_source_with_random_access_is_asked():
    """A resumed run starts at once: nothing before its first step is read."""
    source = RandomAccess()
    assert values(read(source), [1000, 1001, 3]) == [1000, 1001, 3]
    assert source.asked == [1000, 1001, 3]


def test_a_batch_is_read_once_for_all_its_micro_batches():
    """The latest batch is kept."""
    source = RandomAccess()
    batches = read(source)
    assert batches.leaves(5)[0] is batches.leaves(5)[0]
    assert source.asked == [5]


def test_a_loader_is_read_in_order_and_wraps_round():
    """An exhausted loader begins again, as the next epoch."""
    loader = InOrder(3)
    assert values(read(loader), range(7)) == [0, 1, 2, 0, 1, 2, 0]
    assert loader.started == 3


def test_resuming_reads_up_to_the_step():
    """Batch 7 of a loader of three is its second one, as without the interruption."""
    assert values(read(InOrder(3)), [7, 8]) == [1, 2]


def test_going_back_starts_again():
    """An evaluation reads the same batches every time."""
    loader = InOrder(4)
    batches = read(loader)
    assert values(batches, [0, 1, 0, 1]) == [0, 1, 0, 1]
    assert loader.started == 2


def test_a_generator_is_made_anew():
    """A generator function gives the same batches in every epoch and every evaluation."""

    def generate():
        yield from (batch(number) for number in range(3))

    assert values(GlobalBatches(generate), [0, 1, 2, 3, 4, 0, 1]) == [0, 1, 2, 0, 1, 0, 1]


def test_an_iterator_that_is_not_made_anew_goes_as_far_as_it_goes():
    """That is said instead of looping for ever."""
    batches = read(batch(number) for number in range(2))
    assert values(batches, [0, 1]) == [0, 1]
    with pytest.raises(DataError, match="without a single batch"):
        batches.leaves(2)


def test_an_endless_loader_is_never_exhausted():
    """Only what is needed is read."""
    assert values(read(map(batch, itertools.count())), [0, 5]) == [0, 5]


@pytest.mark.parametrize("empty", [[], iter([])])
def test_an_empty_loader_is_an_error(empty):
    """At the first batch, with a remedy."""
    with pytest.raises(DataError, match="without a single batch") as caught:
        read(empty).leaves(0)
    assert "path" in caught.value.remedy


@pytest.mark.parametrize(
    "wrong", [batch(0, rows=1), {"x": torch.zeros(2), "y": torch.zeros(3)}, {"x": torch.tensor(1)}]
)
def test_every_tensor_has_as_many_rows_as_the_batch(wrong):
    """A short last batch is refused, with the shape and how to avoid it."""
    with pytest.raises(DataError, match="wrong number of rows") as caught:
        read([wrong]).leaves(0)
    assert "global batch size, 2" in caught.value.rule
    assert "drop" in caught.value.remedy


def test_the_first_batch_says_how_many_rows():
    """Without a batch size all tensors agree with the first one."""
    _, leaves = read([batch(0, rows=5)], None).first()
    assert [len(leaf) for leaf in leaves] == [5, 5]
    with pytest.raises(DataError, match="wrong number of rows"):
        batch_leaves({"x": torch.zeros(5), "y": torch.zeros(4)})


def test_leaves_are_tensors_in_pytree_order():
    """Nested containers are flattened, what is no tensor is left out."""
    a, b, c = (torch.zeros(2) for _ in range(3))
    leaves = batch_leaves({"one": [a, "text"], "two": {"b": b, "n": None}, "three": (c,)})
    assert [leaf is expected for leaf, expected in zip(leaves, (a, b, c), strict=True)] == [
        True
    ] * 3


def test_the_first_batch_as_the_loader_gives_it():
    """The user's program iterates over the loader's own structure."""
    first, leaves = read([batch(0)]).first()
    assert first["note"] == "text"
    assert leaves[0] is first["x"]
