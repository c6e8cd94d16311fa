"""Weights of micro-batches in a mean over labels."""

from waferstream.core.program.label_means import LabelMean

MEAN = LabelMean(count=0, results=(0,), is_loss=True)


def test_weights_give_the_mean_over_all_labels() -> None:
    """Sums 6 and 20 over 1 and 4 labels: the mean of the batch is 26 / 5."""
    weights = MEAN.weights([[1.0], [4.0]])
    assert sum(w * mean for w, mean in zip(weights, (6.0, 5.0), strict=True)) / 2 == 26 / 5


def test_weights_of_equal_counts_are_exactly_one() -> None:
    """This holds for any number of micro-batches and labels."""
    for count in range(1, 60):
        assert MEAN.weights([[37.0]] * count) == [1.0] * count


def test_weights_without_labels_are_zero() -> None:
    """A micro-batch without labels, and a batch without any."""
    assert MEAN.weights([[0.0], [3.0]]) == [0.0, 2.0]
    assert MEAN.weights([[0.0], [0.0]]) == [0.0, 0.0]


def test_weights_are_those_of_the_mean_s_own_count() -> None:
    """The kernel may count for several means."""
    mean = LabelMean(count=2, results=(), is_loss=False)
    assert mean.weights([[1.0, 9.0, 10.0], [3.0, 9.0, 30.0]]) == [0.5, 1.5]
