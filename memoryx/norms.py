"""Servers agree on the global gradient norm: each sends its part to a leader, which answers all.

The leader is the lowest server that owns a gradient. It adds the per-tensor norms in master order,
as ``torch.nn.utils.clip_grad_norm_`` does, so the total never depends on who owns what.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memoryx.optim.clip import total_norm
from wsc.core.messages import NormPartial, NormTotal
from wsc.core.names import server_name


class NormExchange:
    """The leader's side of the exchange; other servers only know where the leader is."""

    def __init__(self, servers: Sequence[int]) -> None:
        self._servers = tuple(servers)
        self._partials: dict[int, dict[int, NormPartial]] = {}

    @property
    def leader(self) -> str:
        """Name of the server that adds up."""
        return server_name(min(self._servers))

    def take(self, partial: NormPartial) -> Iterator[tuple[str, NormTotal]]:
        """Take one server's part; when all are there, yield the total for each server by name."""
        arrived = self._partials.setdefault(partial.step, {})
        arrived[partial.server] = partial
        if len(arrived) < len(self._servers):
            return
        del self._partials[partial.step]
        norms = dict(pair for part in arrived.values() for pair in part.norms)
        total = total_norm([norms[position] for position in sorted(norms)])
        for server in self._servers:
            yield server_name(server), NormTotal(partial.step, total)
