"""Reserved throughput: a tenant that has had less of it than it reserved has steps to itself.

Tokens are owed to a tenant at its rate while it has sequences that run. So it gets its rate
whatever others ask, if the machine reaches that for it alone; what it leaves is for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from appliance.serving.sequence import Sequence as Running

CREDIT_S = 1.0
"""For how long tokens are owed at most, or counted in advance."""


class Pace:
    """The tokens that are owed to tenants.

    Args:
        now: A clock, in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._at_s = now()
        self._owed: dict[str, float] = {}

    def due(self, running: Sequence[Running]) -> Sequence[Running]:
        """Return those that a step is for: all, or those of tenants that have had too little."""
        self._accrue(running)
        behind = {tenant for tenant, owed in self._owed.items() if owed >= 1}
        return [each for each in running if _reserves(each, behind)] if behind else running

    def count(self, tenant: str, tokens: int) -> None:
        """Take note that a tenant had tokens."""
        if tenant in self._owed:
            self._owed[tenant] -= tokens

    def _accrue(self, running: Sequence[Running]) -> None:
        """Let what is owed grow for those that run; a tenant that begins is owed a token."""
        now_s = self._now()
        passed_s, self._at_s = now_s - self._at_s, now_s
        rates = {
            each.request.tenant: each.request.reserved_tokens_per_s
            for each in running
            if each.request.reserved_tokens_per_s
        }
        self._owed = {
            tenant: max(
                -rate * CREDIT_S,
                min(max(1, rate * CREDIT_S), self._owed[tenant] + rate * passed_s),
            )
            if tenant in self._owed
            else 1.0
            for tenant, rate in rates.items()
        }


def _reserves(each: Running, tenants: AbstractSet[str]) -> bool:
    return bool(each.request.reserved_tokens_per_s) and each.request.tenant in tenants
