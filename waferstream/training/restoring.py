"""Start of a run from a checkpoint: weights and all states, as far as the configuration asks."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from appliance.checkpoints import CheckpointFolder
from cstorch.amp import GradScaler
from cstorch.backend import Backend
from cstorch.cluster.restored import STATES
from cstorch.optim.scheduler import Scheduler
from cstorch.utils.data import DataLoader
from cstorch.utils.data.dataloader import BATCHES, SAMPLES
from waferstream.config.callbacks import LoadCheckpointStates, SkipSamples
from waferstream.config.params import InitConfig
from waferstream.training.callback import Callbacks
from wsc.checkpoint.reader import Reader

log = logging.getLogger("waferstream")


class Restorer:
    """Takes a run to the state of a checkpoint.

    Args:
        trainer: The run, which callbacks receive.
        init: Its configuration.
        backend: The backend that restores weights and optimizer states.
        folder: The checkpoints of the run.
        callbacks: Those of the run.
    """

    def __init__(
        self,
        trainer: object,
        init: InitConfig,
        backend: Backend,
        folder: CheckpointFolder,
        callbacks: Callbacks,
    ) -> None:
        self._trainer = trainer
        self._init = init
        self._backend = backend
        self._folder = folder
        self._callbacks = callbacks
        self._objects: dict[str, Any] = {}  # states of the checkpoint that are not tensors
        self.path: Path | None = None
        """The checkpoint that was restored last, None before the first."""

    def start_from(self, path: Path | str | None) -> None:
        """Restore the named or the newest checkpoint, or start from initial weights."""
        if path == "newest":
            autoload = self._init.checkpoint.autoload_last_checkpoint
            path = self._folder.newest() if autoload else None
        if path is not None:
            self.restore(Path(path), self._asked_states())

    def restore(self, path: Path, states: Collection[str] = STATES) -> None:
        """Restore weights and states of a checkpoint; ``load_states`` hands out the others."""
        checkpoint = self._init.checkpoint
        if checkpoint.strict_version:
            Reader(path).require_version()
        strict = not checkpoint.disable_strict_checkpoint_loading
        self._callbacks.call("on_before_load_checkpoint", self._trainer, str(path))
        objects = self._backend.restore(path, states, strict)
        self._callbacks.call("on_load_checkpoint", self._trainer, objects)
        step = objects.get("global_step", 0)
        earlier = {
            "schedulers": [{"last_epoch": step}] * len(self._init.schedulers),
            "dataloader": {BATCHES: step},
        }
        found = {**earlier, **objects}
        self._objects = {state: found[state] for state in found.keys() & states}
        self.path = path
        log.info("Starting from checkpoint %s, step %d", path, self._backend.global_step)

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

    def _asked_states(self) -> frozenset[str]:
        callback = self._init.callback(LoadCheckpointStates)
        if callback is None or callback.load_checkpoint_states == "all":
            return frozenset(STATES)
        asked = set(callback.load_checkpoint_states)
        if "lr_scheduler" in asked:  # the name of earlier releases
            asked.add("schedulers")
        return frozenset(STATES) & asked
