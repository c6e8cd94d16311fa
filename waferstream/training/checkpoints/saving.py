"""Save the checkpoints of a run, at once or while training goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from appliance.checkpoints.background_save import BackgroundSave
from appliance.checkpoints.folder import NUMBER, CheckpointFolder, Draft
from cstorch.session.saving import begin_save, save
from cstorch.session.session import Session
from waferstream.checkpoint import CLUSTER_STATES
from waferstream.checkpoint.reader import Reader
from waferstream.core.errors import ApplianceNanError, CheckpointError, WaferStreamError
from waferstream.core.stores import Store
from waferstream.host.words import VENDOR_LOG

log = logging.getLogger("waferstream")

_NUM_SHOWN = 5  # tensors in an error


class Saver:
    """Saves states of a backend into a folder; a context, which ends when all is written.

    Args:
        folder: The folder of checkpoints.
        session: The session that trains.
        in_background: Whether training goes on while a checkpoint is written. One is written at a
            time; its error is raised by the next call.
        goes_on: Whether training goes on without a checkpoint that cannot be written (at once).
        store: Where each checkpoint is copied to; training goes on where it denies one.
    """

    def __init__(
        self,
        folder: CheckpointFolder,
        session: Session,
        in_background: bool,
        goes_on: bool,
        store: Store | None = None,
    ) -> None:
        self._folder = folder
        self._session = session
        self._in_background = in_background
        self._goes_on = goes_on
        self._store = store
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self.newest: Path | None = None
        """The last checkpoint that was written or begun."""
        self.unwritten: CheckpointError | None = None
        """Why there is no checkpoint of the last save, if the run went on without it."""

    def __enter__(self) -> Saver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.finish()
            return
        try:
            self.finish()
        except WaferStreamError as second:
            log.warning("%s", second)

    def save(self, objects: dict[str, Any]) -> bool:
        """Save weights, optimizer state and ``objects``, which have the key ``global_step``.

        Returns:
            Whether the checkpoint is written or begun.

        Raises:
            CheckpointError: This or an earlier checkpoint cannot be written, unless the run goes
                on without.
            ApplianceNanError: Weights are not finite, and losses are checked.
        """
        self.finish()
        step = objects["global_step"]
        VENDOR_LOG.info("Saving checkpoint at step %d", step)
        if not self._in_background:
            return self._save_at_once(objects, step)
        with ExitStack() as stack:
            draft = stack.enter_context(self._folder.draft(step))
            numbered = {**objects, NUMBER: draft.number}
            begun = begin_save(self._session, draft.partial, CLUSTER_STATES, numbered)
            self.newest = draft.final
            rest = stack.pop_all()
        self._thread = threading.Thread(
            target=self._complete, args=(begun, rest, draft, step), name="checkpoint"
        )
        self._thread.start()
        return True

    def _save_at_once(self, objects: dict[str, Any], step: int) -> bool:
        try:
            with self._folder.draft(step) as draft:
                numbered = {**objects, NUMBER: draft.number}
                save(self._session, draft.partial, CLUSTER_STATES, numbered)
        except CheckpointError as error:
            if not self._goes_on:
                raise
            self.unwritten = error
            log.warning("Training goes on without a checkpoint of step %d: %s", step, error)
            return False
        self.unwritten = None
        self._note(draft, step)
        return True

    def check(self) -> None:
        """Raise the error of a checkpoint that was written in the background, if any."""
        if self._thread is not None and not self._thread.is_alive():
            self.finish()

    def finish(self) -> None:
        """Wait until everything is written; raise the error that it had."""
        if self._thread is not None:
            try:
                self._session.execution.finish_saving()
            finally:
                self._thread.join()
                self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _complete(self, begun: BackgroundSave, rest: ExitStack, draft: Draft, step: int) -> None:
        try:
            with rest:
                begun.complete()
            self._note(draft, step)
        except BaseException as error:  # raised where the run sees it
            self._error = error

    def _note(self, draft: Draft, step: int) -> None:
        self.newest = draft.final
        log.info("Saved checkpoint %s", draft.final)
        if self._store is not None:
            self._copy_to(self._store)
        if not_finite := Reader(draft.final).not_finite:
            self._refuse(draft.final, step, not_finite)

    def _copy_to(self, store: Store) -> None:
        """Copy new files to the store; warn where it denies them."""
        try:
            store.push()
        except CheckpointError as error:
            log.warning("Training goes on: %s", error)

    def _refuse(self, path: Path, step: int, not_finite: Sequence[str]) -> None:
        """Warn of weights that are no numbers; raise ApplianceNanError where losses are checked."""
        error = ApplianceNanError(
            f"weights or optimizer state after step {step} are not finite",
            code="checkpoint-not-finite",
            where=str(path),
            value=", ".join(not_finite[:_NUM_SHOWN]),
            rule="no run continues from such a checkpoint by itself",
            remedy="lower the learning rate, or clip gradients (precision.max_gradient_norm); the "
            "same command continues from the checkpoint before",
        )
        if self._session.settings.check_loss:
            raise error
        log.warning("%s", error)
