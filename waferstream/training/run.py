"""What the parts of a run share."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from cstorch.session.session import Session, model_of
from waferstream.config.params import InitConfig
from waferstream.training.callback import Callbacks


@dataclass(frozen=True)
class Run:
    """A run: its configuration, its session, and its callbacks."""

    init: InitConfig
    session: Session
    callbacks: Callbacks
    trainer: object
    """What callbacks receive first."""

    @property
    def model(self) -> nn.Module:
        """The model, once it is compiled."""
        return model_of(self.session)

    @property
    def about(self) -> tuple[object, nn.Module]:
        """What most callbacks receive before all else."""
        return self.trainer, self.model
