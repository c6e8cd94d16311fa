"""A batch: what is told of it, and what becomes of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict

from waferstream.serving.batches.lines import Fault
from waferstream.serving.batches.running import Progress

WINDOW_S = 24 * 3600
"""The time that a batch may take."""

Status = Literal[
    "validating", "in_progress", "completed", "failed", "cancelling", "cancelled", "expired"
]

ENDED: frozenset[Status] = frozenset({"completed", "failed", "cancelled", "expired"})


class RequestCounts(BaseModel):
    """The requests of a batch."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    total: int = 0
    completed: int = 0
    failed: int = 0


class Faults(BaseModel):
    """Why a batch has failed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    object: Literal["list"] = "list"
    data: list[Fault]


class Batch(BaseModel):
    """A batch as OpenAI's clients read it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    errors: Faults | None = None
    input_file_id: str
    completion_window: Literal["24h"] = "24h"
    status: Status = "validating"
    output_file_id: str | None = None
    error_file_id: str | None = None
    created_at: int
    expires_at: int
    in_progress_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    expired_at: int | None = None
    request_counts: RequestCounts = RequestCounts()
    usage: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None

    @classmethod
    def new(cls, endpoint: str, source: str, metadata: dict[str, str] | None) -> Batch:
        """Return a batch of a file of requests."""
        now_s = int(time.time())
        return cls(
            id=f"batch_{uuid4().hex}",
            endpoint=endpoint,
            input_file_id=source,
            created_at=now_s,
            expires_at=now_s + WINDOW_S,
            metadata=metadata,
        )

    @property
    def results(self) -> str:
        """The name of the file of its answers."""
        return f"file-{self.id.removeprefix('batch_')}-results"

    @property
    def refusals(self) -> str:
        """The name of the file of what was refused."""
        return f"file-{self.id.removeprefix('batch_')}-errors"

    @property
    def has_ended(self) -> bool:
        """Whether nothing more becomes of it."""
        return self.status in ENDED

    def now(self, status: Status, faults: Sequence[Fault] = ()) -> Batch:
        """Return it with another status, from now on."""
        changes: dict[str, Any] = {"status": status, f"{status}_at": int(time.time())}
        if faults:
            changes["errors"] = Faults(data=list(faults))
        return self.model_copy(update=changes)

    def counting(self, progress: Progress) -> Batch:
        """Return it with what was done."""
        done = progress.completed + progress.failed
        counts = RequestCounts(
            total=max(self.request_counts.total, done),
            completed=progress.completed,
            failed=progress.failed,
        )
        usage = {
            "input_tokens": progress.input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": progress.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": progress.input_tokens + progress.output_tokens,
        }
        return self.model_copy(update={"request_counts": counts, "usage": usage})
