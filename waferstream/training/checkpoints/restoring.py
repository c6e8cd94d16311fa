"""Start of a run from a checkpoint: weights and all states, as far as the configuration asks."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from torch import nn

import cstorch
from appliance.checkpoints.folder import CheckpointFolder
from cstorch.amp import GradScaler
from cstorch.cluster.restored import STATES
from cstorch.optim.scheduler import Scheduler
from cstorch.utils.data import DataLoader
from cstorch.utils.data.dataloader import BATCHES, SAMPLES
from waferstream.checkpoint import MODEL
from waferstream.checkpoint.reader import Reader
from waferstream.config.sections.callbacks import LoadCheckpointStates, SkipSamples
from waferstream.core.errors import CheckpointError
from waferstream.training import launch
from waferstream.training.checkpoints.provenance import check_changes
from waferstream.training.launch import Launch
from waferstream.training.run import Run
from waferstream.workload import user_classes
from waferstream.workload.published_weights import of_our_names, publisher
from waferstream.workload.special_tokens import SPECIAL_TOKENS
from waferstream.workload.weight_files import read_weights, write_checkpoint
from waferstream.workload.weight_kinds import Kind, check_kind, kind_of

log = logging.getLogger("waferstream")


def own_checkpoint(path: Path, section: Mapping[str, Any], folder: Path) -> Path:
    """Return a checkpoint of ours with the weights of one: itself, or a copy in a folder.

    Files of the vendor's package or with its names become a copy, without their other states.

    Args:
        path: The checkpoint.
        section: The model that is to have the weights.
        folder: Where the copy is written.

    Raises:
        CheckpointError: The path holds something else, or weights of another model.
    """
    kind = kind_of(path)
    check_kind(path, kind)
    if kind is Kind.OTHER or (kind is Kind.OURS and not _has_other_names(path, section)):
        return path
    weights = of_our_names(read_weights(path), section)
    target = folder / f"{path.stem}_to_cs.mdl"
    floats = {name: weight.float() for name, weight in weights.items()}
    write_checkpoint(target, floats, {"global_step": 0})
    log.info("Converted the weights of %s to %s; its other states are left out", path, target)
    return target


def _has_other_names(path: Path, section: Mapping[str, Any]) -> bool:
    """Return whether a checkpoint of ours has the names of another zoo."""
    if user_classes.CLASS in section:
        return False
    return publisher(Reader(path).names(MODEL), section) is not None


log = logging.getLogger("waferstream")

_NUM_SHOWN = 3  # differences in an error


class Restorer:
    """Takes a run to the state of a checkpoint.

    Args:
        run: The run.
        folder: Its checkpoints.
    """

    def __init__(self, run: Run, folder: CheckpointFolder) -> None:
        self._run = run
        self._init = run.init
        self._folder = folder
        self._last_number = folder.last_number()  # of the checkpoints of earlier runs
        self._objects: dict[str, Any] = {}  # states of the checkpoint that are not tensors
        self.special_tokens: Mapping[str, Any] = {}
        """Ids of the model of transformers that its weights were converted from."""
        self.is_whole = False
        """Whether the run has taken all states of that checkpoint."""
        self.path: Path | None = None
        """The checkpoint that was restored last, None before the first."""
        self.run_start: int | None = None
        """Steps before the run that this one goes on with; None where it is a run of its own."""
        self.is_run_over = False
        """Whether a later phase of the same run has begun already."""

    def go_on_with(self, own: Launch) -> bool:
        """Restore what an earlier launch of the same workflow has saved; return whether it has."""
        path = self._folder.newest(among=own.has_written)
        if path is None:
            return False
        self.restore(path)
        objects = Reader(path).objects
        self.run_start, self.is_run_over = launch.start_of(objects), own.is_over(objects)
        return True

    def start_from(self, path: Path | str | None, record: Mapping[str, Any]) -> None:
        """Restore the named or the newest checkpoint, or start from initial weights.

        A run that ends after the compiler needs no weights, and leaves the newest one alone.

        Args:
            path: A checkpoint, ``newest`` or None.
            record: What decides about the weights of this run (``provenance.record_of``).

        Raises:
            CheckpointError: The checkpoint is damaged, or of a run on another model or other data.
        """
        if path == "newest":
            autoload = self._init.checkpoint.autoload_last_checkpoint
            autoload = autoload and self._run.session.settings.is_e2e_execution
            path = self._folder.newest() if autoload else None
            strict = not self._init.checkpoint.disable_strict_checkpoint_loading
            if path is not None and strict and "model" in self._asked_states():
                check_same_model(path, self._run.model)
        if path is not None:
            own = own_checkpoint(Path(path), self._init.model.dump(), self._folder.path)
            is_converted = own != Path(path)
            check_changes(own, record, self._states_of_the_same_run())
            self.restore(own, {"model"} if is_converted else self._asked_states())

    def newest_of_run(self) -> Path | None:
        """Return the newest good checkpoint that the run has written, or what it started from."""
        return self._folder.newest(after=self._last_number) or self.path

    def restore(self, path: Path, states: Collection[str] = STATES) -> None:
        """Restore weights and states of a checkpoint; ``load_states`` hands out the others."""
        checkpoint = self._init.checkpoint
        if checkpoint.strict_version:
            Reader(path).require_version()
        strict = not checkpoint.disable_strict_checkpoint_loading
        self._run.callbacks.call("on_before_load_checkpoint", self._run.trainer, str(path))
        objects = self._run.session.restore(path, states, strict)
        self._run.callbacks.call("on_load_checkpoint", self._run.trainer, objects)
        step = objects.get("global_step", 0)
        earlier = {
            "schedulers": [{"last_epoch": step}] * len(self._init.schedulers),
            "dataloader": {BATCHES: step},
        }
        found = {**earlier, **objects}
        self._objects = {state: found[state] for state in found.keys() & states}
        self.special_tokens = objects.get(SPECIAL_TOKENS, {})
        self.path, self.is_whole = path, set(states) >= set(STATES)
        log.info("Starting from checkpoint %s, step %d", path, self._run.session.global_step)

    def load_states(
        self, scaler: GradScaler, schedulers: Sequence[Scheduler], loader: DataLoader
    ) -> None:
        """Let scale, schedulers and loader go on from the checkpoint, or begin, as asked for.

        Checkpoints of earlier versions have no states of schedulers and loader, which followed the
        global step then.
        """
        scaler.load_state_dict(self._objects.get("grad_scaler", {}))
        skip = self._init.callback(SkipSamples)
        if skip is not None and "dataloader" not in self._objects:
            loader.load_state_dict({SAMPLES: skip.n})
        if self.path is None:
            return
        counts = self._objects.get("schedulers", [])
        for scheduler, count in zip_longest(schedulers, counts[: len(schedulers)]):
            scheduler.load_state_dict(count or {"last_epoch": 0})
        if skip is None or "dataloader" in self._objects:
            loader.load_state_dict(self._objects.get("dataloader", {BATCHES: 0}))

    def _states_of_the_same_run(self) -> frozenset[str]:
        """Return the states to restore that only the same model and data may go on from."""
        checkpoint = self._init.checkpoint
        if checkpoint.allow_changes or checkpoint.disable_strict_checkpoint_loading:
            return frozenset()
        return self._asked_states()

    def _asked_states(self) -> frozenset[str]:
        callback = self._init.callback(LoadCheckpointStates)
        if callback is None or callback.load_checkpoint_states == "all":
            return frozenset(STATES)
        asked = set(callback.load_checkpoint_states)
        if "lr_scheduler" in asked:  # the name of earlier releases
            asked.add("schedulers")
        return frozenset(STATES) & asked


def load_weights(model: nn.Module, path: Path | str) -> None:
    """Fill a model of this process with the weights of a checkpoint; errors as of ``fill``."""
    fill(model, cstorch.load(path).get("model", {}), path)


def fill(
    model: nn.Module, weights: Mapping[str, Any], path: Path | str, *, copies: bool = True
) -> None:
    """Fill a model of this process with weights that were read from a path.

    Without copies the weights themselves become those of the model, as where a file is mapped.

    Raises:
        CheckpointError: They are not of this model.
    """
    try:
        model.load_state_dict(weights, assign=not copies)
    except RuntimeError as error:  # which lists all differences
        raise CheckpointError(
            "the checkpoint does not match the model",
            code="checkpoint-keys-mismatch",
            where=str(path),
            value=error,
            remedy="name a checkpoint of this model",
        ) from error


def check_same_model(path: Path, model: nn.Module) -> None:
    """Check that the newest checkpoint of a folder is one of the model that is to be trained.

    Raises:
        CheckpointError: A weight is missing, unexpected, or has another shape.
    """
    tensors = Reader(path).tensors
    ours = {f"model.{name}": tuple(w.shape) for name, w in model.named_parameters()}
    known = ours.keys() | {f"model.{name}" for name in model.state_dict()}
    differences = [
        *(f"missing: {name}" for name in ours if name not in tensors),
        *(f"unexpected: {n}" for n in tensors if n.startswith("model.") and n not in known),
        *(
            f"{name}: found {tensors[name].shape}, expected {shape}"
            for name, shape in ours.items()
            if name in tensors and tuple(tensors[name].shape) != shape
        ),
    ]
    if differences:
        more = f", ... ({len(differences)} in total)" if len(differences) > _NUM_SHOWN else ""
        raise CheckpointError(
            "the newest checkpoint of model_dir is of another model",
            code="model-changed",
            where=str(path),
            value=", ".join(differences[:_NUM_SHOWN]) + more,
            rule="a run goes on from the newest checkpoint of its model_dir",
            remedy="train the changed model in a folder of its own (--model_dir); where weights "
            "are only missing or unexpected, --disable_strict_checkpoint_loading takes the others",
        )
