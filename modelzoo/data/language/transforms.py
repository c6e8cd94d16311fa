"""Changes to the sequences of a dataset (Model Zoo 2.10: ``data_transforms``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import NonNegativeInt, PositiveInt

from modelzoo.data.source import Batch, Samples
from wsc.core.config import Config
from wsc.core.errors import DataError


class AddSinkTokens(Config):
    """Tokens put into every sequence for all queries to attend to; their losses do not count.

    Xiao et al. 2023, "Efficient streaming language models with attention sinks".
    """

    name: Literal["add_sink_tokens"]
    sink_token_id: NonNegativeInt = 0
    num_sink_tokens: PositiveInt = 1
    sink_token_start_pos: NonNegativeInt = 0
    truncate_to_original_length: bool = False
    """Whether as many tokens are cut off at the end."""

    def apply(self, batch: Batch, where: str) -> Batch:
        """Return a batch with the tokens; DataError if its sequences end before their place."""
        place, length = self.sink_token_start_pos, batch["input_ids"].shape[1]
        if place > length:
            raise DataError(
                "sink_token_start_pos must be at most the length of a sequence",
                code="sink-token-outside",
                where=where,
                value=f"{place}, sequences of {length}",
            )
        fills = {"input_ids": self.sink_token_id, "labels": self.sink_token_id, "attention_mask": 0}
        end = length if self.truncate_to_original_length else length + self.num_sink_tokens
        changed = {}
        for name, rows in batch.items():
            added = torch.full((len(rows), self.num_sink_tokens), fills[name], dtype=rows.dtype)
            longer = torch.cat([rows[:, :place], added, rows[:, place:]], dim=1)
            changed[name] = longer[:, :end].contiguous()
        return changed


class Transformed:
    """Another dataset's samples, changed."""

    def __init__(self, samples: Samples, transforms: Sequence[AddSinkTokens]) -> None:
        self.name = samples.name
        self._samples = samples
        self._transforms = transforms

    def __len__(self) -> int:
        return len(self._samples)

    def read(self, indices: np.ndarray) -> Batch:
        batch = self._samples.read(indices)
        for transform in self._transforms:
            batch = transform.apply(batch, self.name)
        return batch
