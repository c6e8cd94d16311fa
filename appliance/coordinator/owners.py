"""Which weight server owns which parameter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from waferstream.checkpoint import parameter_of
from waferstream.core.messages.messages import server_name
from waferstream.core.program.program import TensorSpec
from waferstream.core.program.stream_plan import assign_servers


class Owners:
    """The weight servers of a cluster, and the parameters of each.

    Args:
        parameters: The parameters of the model.
        num_servers: The number of weight servers.
    """

    def __init__(self, parameters: Sequence[TensorSpec], num_servers: int) -> None:
        self._owner = assign_servers(parameters, num_servers)
        self.servers = [server_name(index) for index in range(num_servers)]

    @property
    def parameters(self) -> list[str]:
        """The names of all parameters, sorted."""
        return sorted(self._owner)

    def is_owned(self, name: str) -> bool:
        """Return whether a tensor of the model is a parameter; others are buffers."""
        return name in self._owner

    def by_server(self, names: Iterable[str], state: str) -> dict[str, list[str]]:
        """Return the tensors of a state that each weight server owns, for those that own some."""
        owned: dict[str, list[str]] = {}
        for name in names:
            parameter = parameter_of(name, state)
            if parameter in self._owner:
                owned.setdefault(self.servers[self._owner[parameter]], []).append(name)
        return owned
