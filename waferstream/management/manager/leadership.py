"""Who decides for a store: one management, or two would launch the same workflow."""

from __future__ import annotations

from waferstream.core.errors import ConfigError
from waferstream.management.manager.embedded import is_dead, this_process
from waferstream.management.model.leader import Leader
from waferstream.management.store.changes import Changes

_RENEWED_S = 10.0
"""How old the leader's word becomes before it says again that it leads."""


def lead(changes: Changes, now_s: float) -> None:
    """Let this process decide for a store, if no other one does.

    Raises:
        ConfigError: ``store-is-led``: another process does; one that has died does not.
    """
    own, leader = this_process(), changes.leader()
    if leader is not None and leader.process == own and now_s - leader.time_s < _RENEWED_S:
        return
    if leader is not None and leader.process != own:
        _check_dead(leader, now_s)
    changes.put_leader(Leader(process=own, time_s=now_s))


def _check_dead(leader: Leader, now_s: float) -> None:
    process = leader.process
    if not is_dead(process, now_s - leader.time_s):
        raise ConfigError(
            "another management leads this store",
            code="store-is-led",
            value=f"process {process.pid} on {process.host}",
            rule="one management decides for a store",
            remedy="stop that one, or choose another folder or store",
        )
