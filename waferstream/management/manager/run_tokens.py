"""The token with which a launched process speaks for its workflow: sealed, so that none is kept."""

from __future__ import annotations

from waferstream.host.user_state import is_sealed, sealed

_PREFIX = "run."


def token_of_run(workflow: str) -> str:
    """Return the token of the processes of a workflow."""
    return f"{_PREFIX}{workflow}.{sealed(_content(workflow))}"


def workflow_of(token: str) -> str | None:
    """Return the workflow whose token it is, None if it is no token of a process."""
    workflow, _, seal = token.removeprefix(_PREFIX).partition(".")
    is_own = token.startswith(_PREFIX) and is_sealed(_content(workflow), seal)
    return workflow if is_own else None


def _content(workflow: str) -> bytes:
    return f"run of {workflow}".encode()
