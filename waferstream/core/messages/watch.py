"""What roles watch in addition to the work of a job: norms of tensors, values that are not finite.

Nothing is watched by default, and watching changes no value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from waferstream.core.errors import NotFiniteStepError

Origin = Literal["weights", "micro-batch", "gradients", "update"]

ORIGINS: tuple[Origin, ...] = ("weights", "micro-batch", "gradients", "update")
"""Where a value of a step can first be not finite, in the order of a plain loop."""


class TensorNorms(NamedTuple):
    """L2 norms of a parameter and its gradient, as the optimizer gets them."""

    weight: float
    gradient: float


@dataclass(frozen=True)
class Watch:
    """What to watch: ``norms`` of the last step of a job, and whether values are finite.

    ``finite_to`` is the last step whose weights, activations and gradients are examined, 0 for
    none.
    """

    norms: bool = False
    finite_to: int = 0


NOTHING = Watch()
"""The watch of a job that asks for none."""


class Finding(NamedTuple):
    """A tensor with a value that is not finite; findings sort in the order of a plain loop."""

    step: int
    origin: int  # index of ORIGINS
    micro_batch: int  # -1 where it belongs to none
    place: int  # of the segment step, or of the parameter in its server
    layer: str
    tensor: str
    role: str

    def error(self) -> NotFiniteStepError:
        """Return the error that names the place of the finding."""
        origin = ORIGINS[self.origin]
        which = f", micro-batch {self.micro_batch}" if origin == "micro-batch" else ""
        states = {
            "weights": "a weight is not finite before the step",
            "micro-batch": "a micro-batch computes a value that is not finite",
            "gradients": "a gradient is not finite after it was summed over micro-batches",
            "update": "a weight is not finite after its update",
        }
        return NotFiniteStepError(
            states[origin],
            step=self.step,
            code="value-not-finite",
            where=f"step {self.step}, layer {self.layer or '(model)'}{which}, on {self.role}",
            value=self.tensor,
            rule="weights, activations and gradients are finite numbers",
            remedy="inspect that layer and micro-batch; lower the learning rate or clip gradients, "
            "then continue from a checkpoint of an earlier step",
        )


def first_of(findings: Iterable[Finding]) -> Finding | None:
    """Return the finding that a plain loop meets first."""
    return min(findings, default=None)


def layer_of(parameter: str) -> str:
    """Return the path of the module that has a parameter."""
    return parameter.rpartition(".")[0]


def global_norms(norms: Mapping[str, TensorNorms]) -> TensorNorms:
    """Return the norms over all parameters."""
    pairs = norms.values()
    weight = sum(pair.weight**2 for pair in pairs) ** 0.5
    return TensorNorms(weight, sum(pair.gradient**2 for pair in pairs) ** 0.5)
