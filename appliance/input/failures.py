"""What torch says of a dataset that a DataLoader cannot read, with a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from waferstream.core.errors import DataError

_REMEDIES = {
    "has no len()": "give it __len__, or derive it from torch.utils.data.IterableDataset",
    "each tensor to be equal size": "pad the samples to one length in DataLoader(collate_fn=...)",
}
"""What helps, by a part of the message."""


@contextmanager
def telling_failures() -> Iterator[None]:
    """Raise DataError, with what helps, for known mistakes of a dataset that the block meets."""
    try:
        yield
    except (TypeError, RuntimeError) as error:
        text = str(error)
        remedy = next((each for part, each in _REMEDIES.items() if part in text), None)
        if remedy is None:
            raise
        raise DataError(
            "the loader cannot read the dataset",
            code="dataset-not-readable-by-loader",
            value=text,
            rule="a length, unless it is an IterableDataset; samples of one shape",
            remedy=remedy,
        ) from error
