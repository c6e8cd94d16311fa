"""Sequences that wait, and whose turn it is.

The most urgent come first; among them those that have run before; then those of the tenant that has
had the fewest tokens (virtual token counter; Sheng et al., Fairness in Serving Large Language
Models, OSDI'24). A tenant that asked for nothing meanwhile saves nothing up: it begins with what
the tenant whose turn it was had.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterator
from itertools import chain

from appliance.serving.sequence import Sequence
from waferstream.core.errors import ApplianceResourceExhausted, ApplianceRuntimeServerError


class FairQueue:
    """The sequences that wait, of several tenants.

    Args:
        most: The most sequences.
        most_of_tenant: The most of one tenant.
    """

    def __init__(self, most: int, most_of_tenant: int) -> None:
        self._most, self._most_of_tenant = most, most_of_tenant
        self._groups: dict[_Group, list[Sequence]] = {}  # each in the order of arrival
        self._num_waiting: Counter[str] = Counter()  # by tenant
        self._had: Counter[str] = Counter()  # tokens, by tenant
        self._least = 0  # what the tenant whose turn was last had

    def __len__(self) -> int:
        return self._num_waiting.total()

    def __iter__(self) -> Iterator[Sequence]:
        return chain.from_iterable(self._groups.values())

    def check(self, tenant: str) -> None:
        """Raise an error if another request of a tenant must not wait.

        Raises:
            ApplianceResourceExhausted: Too many of the tenant do.
            ApplianceRuntimeServerError: Too many do.
        """
        if self._num_waiting[tenant] >= self._most_of_tenant:
            raise ApplianceResourceExhausted(
                "too many requests wait",
                code="too-many-waiting",
                value=f"{self._num_waiting[tenant]} of this key",
                rule=f"at most {self._most_of_tenant}",
                remedy="send the next one when an answer has come",
            )
        if len(self) >= self._most:
            raise ApplianceRuntimeServerError(
                "the service has too much to do",
                code="queue-full",
                value=f"{len(self)} requests wait",
                rule=f"at most {self._most}",
                remedy="ask again later",
            )

    def put(self, each: Sequence) -> None:
        """Let a sequence wait."""
        tenant = each.request.tenant
        if not self._num_waiting[tenant]:
            self._had[tenant] = max(self._had[tenant], self._least)
        self._num_waiting[tenant] += 1
        insort(self._groups.setdefault(_group(each), []), each, key=lambda each: each.arrival)

    def first(self) -> Sequence | None:
        """Return the one whose turn it is."""
        heads = [group[0] for group in self._groups.values()]
        return min(heads, key=self._turn, default=None)

    def begin(self, each: Sequence) -> None:
        """Let a sequence run; the first time, its tenant has its prompt."""
        self.remove(each)
        self._least = max(self._least, self._had[each.request.tenant])
        if not each.has_run:
            self.charge(each.request.tenant, len(each.request.prompt))

    def remove(self, each: Sequence) -> None:
        """Let a sequence wait no more."""
        group = self._groups[_group(each)]
        group.remove(each)
        if not group:
            del self._groups[_group(each)]
        self._num_waiting[each.request.tenant] -= 1

    def charge(self, tenant: str, tokens: int) -> None:
        """Take note that a tenant had tokens."""
        self._had[tenant] += tokens

    def _turn(self, each: Sequence) -> tuple[int, bool, int, int]:
        urgency, is_new, tenant = _group(each)
        return urgency, is_new, self._had[tenant], each.arrival


_Group = tuple[int, bool, str]


def _group(each: Sequence) -> _Group:
    """Return what sequences have in common whose turns follow their arrival."""
    return -each.request.priority, not each.has_run, each.request.tenant
