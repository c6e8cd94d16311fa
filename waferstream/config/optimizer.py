"""``trainer.init.optimizer``: ``{Class: {arguments}}`` (cluster_interface.md, section 3.4).

Arguments and defaults are those of the classes with the same names in ``cstorch.optim``.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AliasChoices, Discriminator, Field, NonNegativeFloat, PositiveFloat, Tag

from waferstream.config.section import Named, class_name

Decay = Annotated[float, Field(ge=0, lt=1)]
"""The factor of a running average."""


LearningRate = Annotated[
    NonNegativeFloat | None, Field(validation_alias=AliasChoices("lr", "learning_rate"))
]
"""None where a scheduler, or the rule itself, gives it."""


class Optimizer(Named):
    """What every optimizer has."""

    lr: LearningRate = None
    weight_decay: NonNegativeFloat = 0.0


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum."""

    momentum: NonNegativeFloat = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    maximize: bool = False


class Adam(Optimizer):
    """Adam; weight decay is added to the gradient."""

    lr: LearningRate = 1e-3
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    eps: NonNegativeFloat = 1e-6
    amsgrad: bool = False


class AdamW(Optimizer):
    """Adam with decoupled weight decay."""

    lr: LearningRate = 1e-3
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    eps: NonNegativeFloat = 1e-6
    correct_bias: bool = True
    amsgrad: bool = False


class Lion(Optimizer):
    """The sign of an interpolated momentum."""

    lr: LearningRate = 1e-4
    betas: tuple[Decay, Decay] = (0.9, 0.99)


class Adafactor(Optimizer):
    """Factored second moments."""

    eps: tuple[NonNegativeFloat, NonNegativeFloat] = (1e-30, 1e-3)
    clip_threshold: PositiveFloat = 1.0
    decay_rate: float = -0.8
    beta1: Decay | None = None
    scale_parameter: bool = True
    relative_step: bool = False
    warmup_init: bool = False


class Lamb(Optimizer):
    """Adam with a trust ratio per parameter."""

    lr: LearningRate = 1e-3
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    eps: NonNegativeFloat = 1e-6
    adam: bool = False


OptimizerConfig = Annotated[
    Annotated[SGD, Tag("SGD")]
    | Annotated[Adam, Tag("Adam")]
    | Annotated[AdamW, Tag("AdamW")]
    | Annotated[Lion, Tag("Lion")]
    | Annotated[Adafactor, Tag("Adafactor")]
    | Annotated[Lamb, Tag("Lamb")],
    Discriminator(class_name),
]
