"""All roles of a cluster in this process, with mail that arrives in whatever order a test picks.

Messages of one sender to one receiver keep their order, as an Endpoint promises; nothing else is
promised, and nothing else is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from appliance.cores import UnlimitedCores
from appliance.local import LocalRoles
from tests.support.arenas import StrictArena
from wsc.core.messages import Envelope
from wsc.core.role import Job, Report, RoleContext, RoleSpec

Route = tuple[str, str]
Choose = Callable[[list[Route]], Route]


def oldest_first(routes: list[Route]) -> Route:
    """The route whose first message has waited longest."""
    return routes[0]


class SortingOffice(LocalRoles):
    """Roles, their arenas, and every message that was delivered in the last job.

    ``choose`` picks, of the routes on which a message waits, the one that is served next.
    """

    def __init__(self, specs: Sequence[RoleSpec], choose: Choose = oldest_first) -> None:
        self.choose = choose
        self.arenas = {spec.name: StrictArena() for spec in specs}
        self.roles = self._roles = {
            spec.name: spec.build(RoleContext(self.arenas[spec.name], UnlimitedCores()))
            for spec in specs
        }
        self.delivered: list[Envelope] = []

    def run(self, job: Job) -> list[Report]:
        self.delivered.clear()
        waiting: dict[Route, deque[Envelope]] = {}

        def post(envelope: Envelope) -> None:
            waiting.setdefault((envelope.source, envelope.target), deque()).append(envelope)

        for role in self.roles.values():
            for envelope in role.begin(job):
                post(envelope)
        self.unfinished_at_first = [name for name, r in self.roles.items() if not r.finished]
        while waiting:
            route = self.choose(list(waiting))
            envelope = waiting[route].popleft()
            if not waiting[route]:
                del waiting[route]
            self.delivered.append(envelope)
            for answer in self.roles[envelope.target].handle(envelope):
                post(answer)
        assert all(role.finished for role in self.roles.values())
        return [role.report() for role in self.roles.values()]
