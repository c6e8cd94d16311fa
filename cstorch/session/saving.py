"""Write the checkpoints of a session: values in MemoryX, and what the user's process has."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from appliance.checkpoints.background_save import BackgroundSave
from appliance.coordinator.cluster import Cluster
from appliance.coordinator.commands import BeginCheckpoint, SaveCheckpoint
from cstorch.cluster.fusing import CHOICES
from cstorch.remote.weights import as_arrays
from cstorch.session.session import Session
from waferstream.checkpoint import MODEL
from waferstream.checkpoint.writer import append_links, append_tensors
from waferstream.core.errors import WaferStreamError
from waferstream.core.roles.activities import Place


def save(session: Session, path: Path, states: Collection[str], objects: dict[str, Any]) -> None:
    """Write ``states`` of the cluster and plain ``objects`` to a new file.

    The state ``model`` has all names of ``model.state_dict()``: this process writes buffers, and
    links for tied names.
    """
    with session.execution.trace.log.during("save", Place(step=session.global_step)):
        cluster, objects = _prepare(session, path, states, objects)
        cluster.do(SaveCheckpoint(path.absolute(), states, objects))


def begin_save(
    session: Session, path: Path, states: Collection[str], objects: dict[str, Any]
) -> BackgroundSave:
    """Begin to write a new file as ``save`` does, and return what completes it.

    Steps may run meanwhile: what is written are the values of now.
    """
    execution = session.execution
    with execution.trace.log.during("begin save", Place(step=session.global_step)):
        cluster, objects = _prepare(session, path, states, objects)
        servers = cluster.do(BeginCheckpoint(path.absolute(), states))
    execution.saving = BackgroundSave(path.absolute(), servers, objects)
    execution.trace.note_save(execution.saving)
    return execution.saving


def _prepare(
    session: Session, path: Path, states: Collection[str], objects: dict[str, Any]
) -> tuple[Cluster, dict[str, Any]]:
    """Write what this process has; return the cluster, and all states that are no tensors."""
    if "optimizer" in states and session.have_steps_turns:
        raise WaferStreamError(
            "a checkpoint has the state of one optimizer, and steps take turns",
            code="checkpoint-of-steps-in-turn",
            rule="MemoryX holds the state of the optimizer that has stepped last",
            remedy="save model.state_dict() and the state_dict() of each optimizer",
        )
    cluster, weights = session.model.up_to_date(), session.model.registered
    held = session.execution.held.state
    if "optimizer" in states and held is not None:
        objects = {**objects, "optimizer": held.description()}
    if "optimizer" in states and session.execution.kernels:
        objects = {**objects, CHOICES: session.execution.kernels}
    if "model" in states:
        append_tensors(path, MODEL, as_arrays(weights.buffers()))
        append_links(path, MODEL, weights.tied())
    return cluster, objects
