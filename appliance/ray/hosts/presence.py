"""Where the process of a role is."""

from __future__ import annotations

from dataclasses import dataclass

from swarmx.links.endpoint import Address
from waferstream.core.messages.payload import Payload


@dataclass(frozen=True)
class Presence:
    """Location of a started role.

    ``host`` is Ray's id of the host and ``host_address`` what people call it, empty on a private
    Ray. ``clock_ns`` is the time of day at which the host's performance counter was zero.
    """

    host: str
    pid: int
    address: Address
    log_path: str
    pulse: Payload
    host_address: str = ""
    clock_ns: int = 0

    @property
    def where(self) -> str:
        """The host and the log file, for errors."""
        host = f"host {self.host_address}, " if self.host_address else ""
        return f"{host}log: {self.log_path}"
