"""``trainer.init.loop``: how far to train and when to evaluate."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from waferstream.config.section import Section, StepCount, StepInterval


def _null_is_never(value: object) -> object:
    return 0 if value is None else value


EvalFrequency = Annotated[
    StepInterval | Annotated[float, Field(gt=0, le=1)], BeforeValidator(_null_is_never)
]


class LoopConfig(Section):
    """The length of a run (cluster_interface.md, section 2.2).

    ``num_steps`` counts from where the run starts and wins over ``max_steps``, which counts from
    step 0; ``num_epochs``, of ``steps_per_epoch`` steps or one pass over the data, replaces
    ``num_steps``.
    """

    num_steps: StepCount | None = None
    max_steps: StepCount | None = None
    num_epochs: PositiveInt | None = None
    steps_per_epoch: StepCount | None = None
    eval_frequency: EvalFrequency = 1.0
    """int: evaluate every so many steps. float: every such fraction of the run. 0: never."""
    eval_steps: StepCount | None = None
    """Batches of one evaluation; None takes the whole data."""
    grad_accum_steps: PositiveInt = 1
    """For other devices; a cluster cuts the global batch into micro-batches itself."""

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.num_epochs is not None and self.num_steps is not None:
            raise ValueError("num_steps and num_epochs exclude each other")
        if self.steps_per_epoch is not None and self.num_epochs is None:
            raise ValueError("steps_per_epoch needs num_epochs")
        return self
