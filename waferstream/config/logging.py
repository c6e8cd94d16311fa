"""``trainer.init.logging``: how often and how much is said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field

from waferstream.config.section import Section, StepCount
from wsc.core.errors import nearest

Role = Literal["crd", "wrk", "wgt", "act", "cmd", "br", "chf"]
"""Short names of the cluster's tasks (cluster_interface.md, section 1.1)."""

ROLES: tuple[str, ...] = get_args(Role)

LevelName = Literal["CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG", "NOTSET"]


def _upper(value: Any) -> Any:
    """``info`` is INFO, and ``"20"`` the number."""
    if not isinstance(value, str):
        return value
    return int(value) if value.isdecimal() else value.upper()


Level = Annotated[LevelName | int, BeforeValidator(_upper)]


def levels_by_role(value: Any) -> Any:
    """One level for all as a level for each role; a mapping ``role[.tag][.phase]: level`` as is."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        return dict.fromkeys(ROLES, value)
    for key in value:
        role = str(key).split(".")[0]
        if role not in ROLES:
            guess = nearest(role, ROLES)
            hint = f"; did you mean {guess!r}?" if guess else ""
            raise ValueError(f"no task is called {role!r}, known: {', '.join(ROLES)}{hint}")
    return value


class LoggingConfig(Section):
    """Log settings (cluster_interface.md, section 2.2)."""

    log_steps: StepCount = 1
    """Print the loss every so many steps."""
    log_level: Level = "INFO"
    """Of the user's process."""
    wsc_log_level: Annotated[dict[str, Level], BeforeValidator(levels_by_role)] = Field(
        default_factory=dict
    )
    """Of the real cluster's tasks; emulated roles report to the user's process alone."""
    enable_act_frequency: bool = False
    """Fetch losses on log steps only: an emulated cluster always does."""
