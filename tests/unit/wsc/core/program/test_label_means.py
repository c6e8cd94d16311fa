"""Weights of micro-batches in a mean over labels."""

from tests.support.errors import raises
from wsc.core.errors import DataError
from wsc.core.program.label_means import LabelMean

SAMPLES = [1.0, 1.0]
MEAN = LabelMean(counts=(0,), has_other_terms=False, results=(0,), is_loss=True)


def test_weights_give_the_mean_over_all_labels() -> None:
    """Sums 6 and 20 over 1 and 4 labels: the mean of the batch is 26 / 5."""
    weights = MEAN.weights([[1.0], [4.0]], SAMPLES, step=1)
    assert sum(w * mean for w, mean in zip(weights, (6.0, 5.0), strict=True)) / 2 == 26 / 5


def test_weights_of_equal_counts_are_exactly_one() -> None:
    """This holds for any number of micro-batches and labels."""
    for count in range(1, 60):
        assert MEAN.weights([[37.0]] * count, [1.0] * count, step=1) == [1.0] * count


def test_weights_without_labels_are_zero() -> None:
    """A micro-batch without labels, and a batch without any."""
    assert MEAN.weights([[0.0], [3.0]], SAMPLES, step=1) == [0.0, 2.0]
    assert MEAN.weights([[0.0], [0.0]], SAMPLES, step=1) == [0.0, 0.0]


def test_weights_of_terms_with_equal_counts_are_theirs() -> None:
    """Each count may be another multiple of the same numbers."""
    mean = LabelMean((0, 2), has_other_terms=False, results=(), is_loss=True)
    assert mean.weights([[1.0, 9.0, 10.0], [3.0, 9.0, 30.0]], SAMPLES, step=1) == [0.5, 1.5]


def test_weights_that_differ_between_terms_are_refused() -> None:
    """No single weight of a micro-batch gives the mean over the batch of both terms."""
    two = LabelMean((0, 1), has_other_terms=False, results=(), is_loss=True)
    with raises(DataError, "label-counts-differ"):
        two.weights([[1.0, 2.0], [3.0, 2.0]], SAMPLES, step=1)
    beside = LabelMean((0,), has_other_terms=True, results=(), is_loss=True)
    assert beside.weights([[2.0], [2.0]], SAMPLES, step=1) == [1.0, 1.0]
    with raises(DataError, "label-counts-differ") as caught:
        beside.weights([[1.0], [2.0]], SAMPLES, step=7)
    assert caught.value.where == "step 7"


def test_other_terms_count_with_their_samples() -> None:
    """Three and two samples, each with five labels: the weights of labels and samples agree."""
    beside = LabelMean((0,), has_other_terms=True, results=(), is_loss=True)
    assert beside.weights([[15.0], [10.0]], [1.2, 0.8], step=1) == [1.2, 0.8]
    with raises(DataError, "label-counts-differ"):
        beside.weights([[15.0], [10.0]], SAMPLES, step=1)
