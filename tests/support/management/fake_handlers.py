"""A management in memory behind real doors: enough of one to see what the doors do."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from waferstream.core.errors import ConfigError, RequestRefused
from waferstream.core.secrets import digest_of
from waferstream.management.door.authentication import Authentication
from waferstream.management.model import operations as ask
from waferstream.management.model.event import Ended, Event, Fact, Submitted, after, submitted
from waferstream.management.model.job import Phase
from waferstream.management.model.operations import Caller, Operation
from waferstream.management.model.workflow import Submission, Workflow
from waferstream.version import VERSION


class FakeHandlers:
    """Workflows, events and files of a management that schedules nothing."""

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._newest = 0
        self.begin(folder)

    def begin(self, folder: Path) -> None:
        """Forget everything but the number of the newest event, and keep files in a folder."""
        self.folder = folder
        self.workflows: dict[str, Workflow] = {}
        self.log: list[Event] = []
        self.num_submits = 0
        self.callers: dict[str, Caller] = {}

    # Of users

    def add(self, secret: str, caller: Caller) -> None:
        self.callers[digest_of(secret)] = caller

    def users(self) -> list[Caller]:
        return list(self.callers.values())

    def caller_of(self, digest: str) -> Caller | None:
        return self.callers.get(digest)

    @contextmanager
    def reading(self) -> Iterator[FakeHandlers]:
        yield self

    def authentication(self) -> Authentication:
        return Authentication(self.reading, lambda _: None)

    # What the doors call

    def do(self, caller: Caller, operation: Operation[Any]) -> Any:
        if caller.role not in operation.roles:
            raise RequestRefused("another role asks", code="role-forbids")
        with self._lock:
            return self._do(caller, operation)

    def _do(self, caller: Caller, operation: Operation[Any]) -> Any:
        result: Any = None
        match operation:
            case ask.ReadVersion():
                result = ask.Version(version=VERSION)
            case ask.Submit():
                result = self._submit(caller, operation.submission)
            case ask.ListWorkflows():
                result = list(self.workflows.values())[: operation.limit]
            case ask.ReadWorkflow():
                result = self._found(operation.name)
            case ask.ReadEvents():
                newer = [each for each in self.log if each.number > operation.after]
                of_it = [each for each in newer if operation.name in ("", each.workflow)]
                result = of_it[: operation.limit]
            case ask.Cancel():
                self._own(caller, operation.name)
                result = self._note(operation.name, Ended(result=Phase.CANCELLED))
            case ask.NoteFact():
                result = self._note(operation.name, operation.fact)
            case ask.Explain():
                raise ZeroDivisionError(operation.name)  # a fault of the management
        return result

    def newest_event(self) -> int:
        return self._newest

    def log_path(self, caller: Caller, workflow: str) -> Path:
        self._own(caller, workflow)
        return self.folder / f"{workflow}.log"

    def file_path(self, caller: Caller, workflow: str, path: str) -> Path:
        self._own(caller, workflow)
        root = (self.folder / workflow).resolve()
        found = (root / path).resolve()
        if not found.is_relative_to(root) or not found.is_file():
            raise ConfigError("no such file", code="data-file-not-found", value=path)
        return found

    def upload_path(self) -> Path:
        return self.folder / f".{secrets.token_hex(8)}.partial"

    def keep_package(self, caller: Caller, uploaded: Path) -> str:
        content = uploaded.read_bytes()
        digest = sha256(content).hexdigest()
        uploaded.replace(self.folder / digest)
        return digest

    # What tests call

    def submit(self, user: str = "ann") -> str:
        with self._lock:
            return self._submit(Caller(user=user), Submission(words=("fit",))).name

    def note(self, name: str, fact: Fact) -> None:
        with self._lock:
            self._note(name, fact)

    def _submit(self, caller: Caller, submission: Submission) -> Workflow:
        self.num_submits += 1
        name = f"wflow-{self.num_submits:022}"
        fact = Submitted(user=caller.user, submission=submission)
        self.workflows[name] = submitted(name, 0.0, fact)
        self._keep(name, fact)
        return self.workflows[name]

    def _note(self, name: str, fact: Fact) -> Workflow:
        self.workflows[name] = after(self._found(name), fact, 0.0)
        self._keep(name, fact)
        return self.workflows[name]

    def _keep(self, name: str, fact: Fact) -> None:
        self._newest += 1
        self.log.append(Event(number=self._newest, time_s=0.0, workflow=name, fact=fact))

    def _own(self, caller: Caller, name: str) -> None:
        user = self._found(name).user
        if caller.user != user and caller.role != "administrator":
            raise RequestRefused("of another user", code="not-your-workflow", where=name)

    def _found(self, name: str) -> Workflow:
        if name not in self.workflows:
            raise ConfigError("no such job", code="unknown-job", value=name)
        return self.workflows[name]
