"""The thread that serves requests: it plans a step, computes it, and hands out events."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np

from appliance.serving.batcher import Batcher
from appliance.serving.cache_directory import Change, Copy
from appliance.serving.draft import Draft, propose
from appliance.serving.scorer import Scorer
from waferstream.core.errors import ApplianceRuntimeServerError, WaferStreamError
from waferstream.core.serving import (
    AnswerEnded,
    AnswerFailed,
    CacheLostError,
    Event,
    Load,
    Part,
    Request,
)

log = logging.getLogger("waferstream")

Listener = Callable[[Event], None]
"""What the events of a request are given to, in the engine's thread; it must not wait."""

END_S = 30.0
"""The longest that ``close`` waits for a step that is being computed."""


class Engine:
    """Requests to one stage, from any threads.

    Args:
        stage: What computes them.
        batcher: What plans them.
        draft: A model that proposes tokens, if there is one.
    """

    def __init__(self, stage: Scorer, batcher: Batcher, draft: Draft | None = None) -> None:
        self._stage = stage
        self._draft = draft
        self._batcher = batcher
        self._listeners: dict[str, Listener] = {}
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="serving", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether requests are answered."""
        return not self._is_closed

    @property
    def load(self) -> Load:
        """What waits and runs."""
        with self._changed:
            return self._batcher.load

    def submit(self, request: Request, listener: Listener) -> None:
        """Answer a request, whose events a listener gets; the last one ends the answer.

        Raises:
            ConfigError: The request does not fit.
            ApplianceRuntimeServerError: The engine has ended.
        """
        with self._changed:
            if self._is_closed:
                raise _ended()
            self._batcher.submit(request)
            self._listeners[request.name] = listener
            self._changed.notify()

    def cancel(self, name: str) -> None:
        """Forget a request before its next step; its listener hears no more. Idempotent."""
        with self._changed:
            self._listeners.pop(name, None)
            if self._batcher.cancel(name):
                self._changed.notify()

    def close(self) -> None:
        """End; requests that are under way fail. Idempotent."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(END_S)

    def _serve(self) -> None:
        error: WaferStreamError = _ended()
        try:
            while self._await_work():
                self._step()
        except WaferStreamError as failure:
            error = failure
        except Exception as failure:
            log.exception("Serving has failed")
            error = ApplianceRuntimeServerError(
                "a step of serving failed", code="serving-failed", value=failure
            )
        finally:
            self._fail_all(error)

    def _await_work(self) -> bool:
        """Wait for a request or a change of the cache; return whether the engine goes on."""
        batcher = self._batcher
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or batcher.cache.has_changes or not batcher.is_idle,
                timeout=batcher.cache.ends_in_s,
            )
            return not self._is_closed

    def _step(self) -> None:
        """Compute one step, and hand out what it gives; the stage belongs to this thread."""
        events: list[Event] = []
        with self._changed:
            wanted = self._batcher.wanted
        proposals = propose(wanted, self._draft)
        with self._changed:
            parts = self._batcher.plan(proposals)
            changes = self._batcher.cache.changes()  # what is cancelled from here on is computed
        try:
            self._change_cache(changes)
            scores = self._scores(parts)
            with self._changed:
                events = self._batcher.take(scores)
                changes = self._batcher.cache.changes()
            self._change_cache(changes)
        except CacheLostError:
            with self._changed:
                self._batcher.restart()
        self._hand_out(events)

    def _change_cache(self, changes: Sequence[Change]) -> None:
        """Let the stage copy and forget what the batcher has planned."""
        for change in changes:
            if isinstance(change, Copy):
                self._stage.copy(change.source, change.target, change.tokens)
            else:
                self._stage.forget(change.sequence)

    def _scores(self, parts: Sequence[Part]) -> np.ndarray:
        """Return the scores that the parts ask for."""
        if not parts:
            return np.empty((0, 0), np.float32)
        return np.asarray(self._stage.extend(parts))

    def _hand_out(self, events: Sequence[Event]) -> None:
        """Give events to who listens; one that cancels or fails hears no more."""
        for event in events:
            with self._changed:
                listener = self._listeners.get(event.request)
                if isinstance(event, AnswerEnded | AnswerFailed):
                    self._listeners.pop(event.request, None)
            try:
                if listener is not None:
                    listener(event)
            except Exception:  # others go on
                log.exception("Who asked for %s fails", event.request)
                self.cancel(event.request)

    def _fail_all(self, error: WaferStreamError) -> None:
        with self._changed:
            self._is_closed = True
            listeners, self._listeners = self._listeners, {}
        for name, listener in listeners.items():
            with suppress(RuntimeError):  # the loop of a listener has ended
                listener(AnswerFailed(name, error))


def _ended() -> ApplianceRuntimeServerError:
    return ApplianceRuntimeServerError(
        "the service has ended", code="serving-ended", remedy="start it again"
    )
