"""The processes of workflows: what starts them, and what their ends mean.

What is to run is noted in the store first. Starting is idempotent, so that a manager which was
killed between the two makes up for it in its next turn.
"""

from __future__ import annotations

from pathlib import Path

from waferstream.core.errors import ClusterJobInitError, ConfigError
from waferstream.host.user_state import STATE_FOLDER
from waferstream.management.launch.launcher import ASKED, KILLED, Ended, Launch, Launcher
from waferstream.management.manager.commands import command_of
from waferstream.management.manager.folders import Folders
from waferstream.management.manager.run_tokens import token_of_run
from waferstream.management.model import event
from waferstream.management.model.job import Phase
from waferstream.management.model.launched import (
    ADDRESS,
    DASHBOARD,
    RUNTIME_ADDRESS,
    SYSTEMS,
    TOKEN,
    WORKFLOW,
)
from waferstream.management.model.workflow import Stage, Submission, Workflow
from waferstream.management.store.changes import Changes
from waferstream.management.store.store import Store

MOST_LOST = 3
"""Processes in turn that a workflow may lose without getting further."""

_NEVER_STARTED = Ended(ASKED)
"""What a process that was asked to end before it could be started has left: nothing."""

_WITH_PROCESS = (Stage.COMPILING, Stage.RUNNING, Stage.ENDING)


class Launches:
    """The processes of the workflows of a management.

    Args:
        launcher: Starts and stops them.
        folders: Where workflows have their files.
    """

    address = ""
    """Where a launched process finds the management, such as ``127.0.0.1:9000``."""

    pages = ""
    """Where people find its pages, such as ``http://127.0.0.1:9080``."""

    def __init__(self, launcher: Launcher, folders: Folders) -> None:
        self._launcher = launcher
        self._asked: set[str] = set()
        self._refused: dict[str, Ended] = {}
        self.folders = folders

    def check(self, submission: Submission) -> None:
        """Raise ConfigError where a submission cannot be launched."""
        if not submission.words:
            raise ConfigError(
                "a workflow must name a command", code="missing-key", where="submission.words"
            )
        if submission.process is not None or not submission.is_queued:
            raise ConfigError(
                "a workflow of this management must wait in its queue, and have no process yet",
                code="not-allowed",
                where="submission.process, submission.is_queued",
                remedy="leave both out",
            )
        command_of(submission, submission.num_csx, Path())
        if submission.package:
            self.folders.packages.path(submission.package)

    def note_ends(self, changes: Changes, now_s: float) -> None:
        """Note what follows from processes that have ended."""
        states = {**self._launcher.states(), **self._refused}
        for workflow in _with_process(changes.workflows()):
            state = states.get(launch_id(workflow))
            if state is None and workflow.stage is Stage.ENDING:
                state = _NEVER_STARTED
            if isinstance(state, Ended):
                fact = _meaning(workflow, state, self._last_words(workflow))
                changes.note(workflow.name, fact, now_s)

    def follow(self, store: Store) -> None:
        """Start processes that are to run, ask those to end that are not, and forget ended ones.

        Raises:
            OSError: A process could not be started; all others were.
            ClusterJobInitError: The same.
        """
        with store.reading() as changes:
            workflows = changes.workflows()
        wanted = {launch_id(each): each for each in _with_process(workflows)}
        leaving = [each for each in workflows if each.stage is Stage.ENDING]
        self._refused = {name: end for name, end in self._refused.items() if name in wanted}
        states = {**self._launcher.states(), **self._refused}
        errors: list[OSError | ClusterJobInitError] = []
        for name, workflow in wanted.items():
            is_due = name not in states and workflow.stage is not Stage.ENDING
            if is_due and not any(_share(workflow, each) for each in leaving):
                try:
                    self._start(name, workflow)
                except (OSError, ClusterJobInitError) as error:
                    errors.append(error)
            if workflow.stage is Stage.ENDING and name not in self._asked:
                self._asked.add(name)
                self._launcher.ask_to_end(name)
        for name, state in states.items():
            if name not in wanted:
                self._drop(name, state)
        if errors:
            raise errors[0]

    def _start(self, name: str, workflow: Workflow) -> None:
        """Start the process of a workflow; one that never can has ended with the reason."""
        try:
            self._launcher.start(self._launch(workflow))
        except ConfigError as error:
            self._refused[name] = Ended(1, str(error).splitlines()[0])

    def _drop(self, name: str, state: object) -> None:
        """Forget a launch that no workflow needs; kill it if it still runs."""
        self._asked.discard(name)
        if isinstance(state, Ended):
            self._launcher.forget(name)
        else:
            self._launcher.kill(name)

    def _launch(self, workflow: Workflow) -> Launch:
        submission, name = workflow.submission, workflow.name
        model_dir = self.folders.model_dir(name)
        words = command_of(
            submission, workflow.num_csx, model_dir, workflow.stage is Stage.COMPILING
        )
        env = {
            ADDRESS: self.address,
            TOKEN: token_of_run(name),
            WORKFLOW: name,
            SYSTEMS: str(submission.num_csx),
            DASHBOARD: f"{self.pages}/jobs/{name}",
            STATE_FOLDER: str(self.folders.state_of(workflow.user)),
            RUNTIME_ADDRESS: self._launcher.runtime_address,
        }
        return Launch(
            id=launch_id(workflow),
            folder=self.folders.prepare(name, submission.package),
            words=("-P", "-m", "waferstream", *words),
            log=self.folders.log(name),
            env=env,
            packages=submission.requirements,
        )

    def _last_words(self, workflow: Workflow) -> str:
        """Return the error that a run has printed, or else its last line."""
        lines = self.folders.log_tail(workflow.name).splitlines()
        errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
        return (errors or [line for line in lines if line.strip()] or [""])[-1].strip()


def launch_id(workflow: Workflow) -> str:
    """Return the identifier of the newest process of a workflow."""
    return f"{workflow.name}-{workflow.attempt}"


def _share(workflow: Workflow, other: Workflow) -> bool:
    """Return whether another workflow still holds something that a placed one was given."""
    mine, theirs = workflow.placement, other.placement
    if mine is None or theirs is None or workflow.name == other.name:
        return False
    return mine.group == theirs.group or not set(mine.systems).isdisjoint(theirs.systems)


def _with_process(workflows: list[Workflow]) -> list[Workflow]:
    return [each for each in workflows if each.stage in _WITH_PROCESS and not each.is_embedded]


def _meaning(workflow: Workflow, state: Ended, last_words: str) -> event.Fact:
    """Return what has happened to a workflow whose process has ended.

    A process that was asked to end ends with 0 if it had computed everything, with ``ASKED`` if it
    has saved its step. One that SIGTERM or SIGKILL of somebody else has ended is lost, as is one
    that fails while it is asked: what it needs may have ended before it.
    """
    has_only_compiled = workflow.placement is None
    has_saved = state.exit_code == ASKED
    is_lost = state.exit_code in (None, KILLED, ASKED) or workflow.aim is not None
    match workflow.aim:
        case "cancel" if has_only_compiled or state.exit_code != 0:
            return event.Ended(result=Phase.CANCELLED, message=workflow.reason or "cancelled")
        case _ if state.exit_code == 0:
            return event.Released() if has_only_compiled else event.Ended(result=Phase.SUCCEEDED)
        case "resize" if has_saved and workflow.next_placement is not None:
            return event.Placed(placement=workflow.next_placement)
        case "pause" if has_saved:
            return event.Released(reason="paused; it goes on from where it was")
        case _ if is_lost and workflow.losses < MOST_LOST:
            return event.Released(reason="its process was lost; it goes on", is_lost=True)
    message = last_words or state.message or f"exit code {state.exit_code}"
    return event.Ended(result=Phase.FAILED, message=message)
