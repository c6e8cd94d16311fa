"""Every message that travels between roles, by protocol.

    weight stream    server -> switches -> nodes   WeightsReady    credit back: WeightsReleased
    gradient stream  nodes -> switches -> server   GradientReady   credit back: GradientReleased
    input stream     worker -> node                BatchReady      credit back: BatchReleased
    stash exchange   node -> activation server     StashReady      credit back: StashReleased
                                                   StashWanted
                     activation server -> node     StashReady      credit back: StashReleased
    norm exchange    servers <-> their leader      NormPartial, NormTotal
    update stream    server -> its replica         UpdateReady,    credit back: UpdateReleased
                                                   UpdateSkipped
    commitment       nodes, servers -> servers     StepDone (protected or verified jobs only)
    abort            coordinator -> all            Abort (handled by the shell of a role)
    tally            any -> any                    Tally (handled by the shell of a role)

``Ready`` says that a payload may be read in place; ``Released`` says that the reader is done with
it: its owner may reuse the memory. These credits are the only backpressure.

Envelopes address roles by name (``waferstream.core.roles.names``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from waferstream.core.messages.payload import Payload
from waferstream.core.messages.reduce_order import Subtree
from waferstream.core.messages.watch import Finding

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class WeightsReady:
    """One bucket of a segment's weights, in stream dtype, for one round.

    ``loss_scale`` is the dynamic loss scale of the step, if there is one. A server that has nothing
    to update streams ahead of it; a weight that is trained never does, and the loss depends on one.
    """

    step: int
    round: int
    bucket: int
    payload: Payload
    loss_scale: float | None = None


@dataclass(frozen=True)
class WeightsReleased:
    """The credit of a weight bucket: every reader below the sender has dropped it."""

    step: int
    round: int
    bucket: int


@dataclass(frozen=True)
class GradientReady:
    """One gradient bucket over one subtree of micro-batches, in Program.dtype_of_sum."""

    step: int
    round: int
    bucket: int
    subtree: Subtree
    payload: Payload


@dataclass(frozen=True)
class GradientReleased:
    """The credit of a gradient payload: it was added or applied."""

    step: int
    round: int
    bucket: int
    subtree: Subtree


@dataclass(frozen=True)
class BatchReady:
    """The inputs of one micro-batch, packed one after the other in program order.

    ``label_weights`` are its weights in the means over labels of the program.
    """

    step: int
    micro_batch: int
    payload: Payload
    label_weights: tuple[float, ...] = ()


@dataclass(frozen=True)
class BatchReleased:
    """The credit of a micro-batch: the node has copied its inputs."""

    step: int
    micro_batch: int


@dataclass(frozen=True)
class StashReady:
    """What one micro-batch has stashed, on its trip to an activation server or on the way back."""

    step: int
    micro_batch: int
    trip: int
    payload: Payload


@dataclass(frozen=True)
class StashWanted:
    """The node needs what has left on a trip: the next segment reads it."""

    step: int
    micro_batch: int
    trip: int


@dataclass(frozen=True)
class StashReleased:
    """The credit of a stash: the receiver has copied it."""

    step: int
    micro_batch: int
    trip: int


@dataclass(frozen=True)
class NormPartial:
    """L2 norm of each gradient that one server owns, by position in master order.

    There are no norms where gradients are not clipped by norm. ``is_finite`` says whether all
    gradients of the server are; it is only examined with a dynamic loss scale.
    """

    step: int
    server: int
    norms: tuple[tuple[int, float], ...]
    is_finite: bool = True


@dataclass(frozen=True)
class NormTotal:
    """The global gradient norm of a step, and whether all gradients are finite: agreed by all."""

    step: int
    norm: float
    is_finite: bool = True


@dataclass(frozen=True)
class UpdateReady:
    """The gradients of one bucket as a weight server applies them, for its replica to do the same.

    ``applied`` is the number of the step among those whose updates are applied.
    """

    step: int
    bucket: int
    applied: int
    payload: Payload


@dataclass(frozen=True)
class UpdateSkipped:
    """A weight server does not apply the gradients of one bucket, since some are not finite."""

    step: int
    bucket: int


@dataclass(frozen=True)
class UpdateReleased:
    """The credit of an update: the replica has applied it."""

    step: int
    bucket: int


class Vote(NamedTuple):
    """The digest of the gradients of ``node`` in a round, as the sender computed them."""

    round: int
    node: int
    digest: bytes


@dataclass(frozen=True)
class StepDone:
    """The sender has done its part of a step; see memoryx.job.commitment.

    ``results`` are those of each micro-batch of a CS node, with its index, ``findings`` what the
    node found not finite. Both outlive the node in the weight servers. ``votes`` are those on
    gradients that two nodes have computed (waferstream.core.roles.verification).
    """

    step: int
    results: tuple[tuple[int, tuple[float | torch.Tensor | None, ...]], ...] = ()
    findings: tuple[Finding, ...] = ()
    votes: tuple[Vote, ...] = ()


@dataclass(frozen=True)
class Abort:
    """The receiver ends its part of the job that began with ``step``, even while it waits."""

    step: int


@dataclass(frozen=True)
class Tally:
    """The number of messages that a role has sent to the receiver; ``step`` means nothing here."""

    step: int
    num_sent: int


Message = (
    WeightsReady
    | WeightsReleased
    | GradientReady
    | GradientReleased
    | BatchReady
    | BatchReleased
    | StashReady
    | StashWanted
    | StashReleased
    | NormPartial
    | NormTotal
    | UpdateReady
    | UpdateSkipped
    | UpdateReleased
    | StepDone
    | Abort
    | Tally
)

Credit = WeightsReleased | GradientReleased | BatchReleased | StashReleased | UpdateReleased


def credit_of(message: Message) -> Credit | None:
    """Return the message that gives the memory of a payload back, None without a credit."""
    match message:
        case WeightsReady(step, round_index, bucket):
            return WeightsReleased(step, round_index, bucket)
        case GradientReady(step, round_index, bucket, subtree):
            return GradientReleased(step, round_index, bucket, subtree)
        case BatchReady(step, micro_batch):
            return BatchReleased(step, micro_batch)
        case StashReady(step, micro_batch, trip):
            return StashReleased(step, micro_batch, trip)
        case UpdateReady(step, bucket):
            return UpdateReleased(step, bucket)
    return None


@dataclass(frozen=True)
class Envelope:
    """A message with the names of its sender and receiver.

    ``number`` counts the messages of this direction (waferstream.core.messages.message_numbers); 0
    is none. ``sent_ns`` is the time of day at which a link between hosts took it; 0 within a host.
    """

    source: str
    target: str
    message: Message
    number: int = 0
    sent_ns: int = field(default=0, compare=False)
