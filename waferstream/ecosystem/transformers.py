"""``transformers.Trainer`` on the cluster, by a callback.

trainer = Trainer(model=model, args=args, train_dataset=data,
                  callbacks=[WaferStreamCallback(num_csx=4)])
trainer.train()
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import TrainerCallback, TrainingArguments

from cstorch.handover import Handover, hand_over
from waferstream.core.errors import ConfigError

_IGNORED = -100
"""The label of a token that no loss of transformers counts."""


class WaferStreamCallback(TrainerCallback):  # type: ignore[misc]  # checked without it
    """Trains the model of a Trainer on a cluster.

    Args:
        settings: Fields of ``cstorch.CSConfig``, such as ``num_csx`` and ``cluster``.
    """

    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        self._handover: Handover | None = None

    def on_train_begin(self, args: TrainingArguments, *_: Any, **trainer: Any) -> None:
        """Hand over model and optimizer."""
        _check(args)
        args.logging_nan_inf_filter = False  # it reads each loss before the update
        optimizer = trainer["optimizer"]
        self._handover = hand_over(
            trainer["model"],
            getattr(optimizer, "optimizer", optimizer),
            arguments=_without_own_count,
            **self._settings,
        )

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Let the model have its trained weights."""
        if self._handover is not None:
            self._handover.end()


def _check(args: TrainingArguments) -> None:
    """Raise ConfigError for arguments with which gradients are none of single batches."""
    if args.gradient_accumulation_steps > 1:
        size = args.per_device_train_batch_size * args.gradient_accumulation_steps
        raise ConfigError(
            "gradients must not be accumulated by the trainer",
            code="trainer-accumulates",
            where="TrainingArguments.gradient_accumulation_steps",
            value=args.gradient_accumulation_steps,
            rule="the cluster cuts a batch of any size in micro-batches, and adds them up",
            remedy=f"per_device_train_batch_size={size}, gradient_accumulation_steps=1",
        )


def _without_own_count(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Leave out the number of labels where it is that of the mean, which the loss counts too."""
    count, labels = kwargs.get("num_items_in_batch"), kwargs.get("labels")
    if count is None or labels is None:
        return args, kwargs
    if int(torch.as_tensor(count)) != int((labels[..., 1:] != _IGNORED).sum()):
        return args, kwargs
    return args, {key: value for key, value in kwargs.items() if key != "num_items_in_batch"}
