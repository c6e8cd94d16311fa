"""All roles of a cluster in this process, with messages delivered in any order a test chooses.

Messages of one sender to one receiver keep their order, as an Endpoint guarantees; no other order
is kept.
"""

from __future__ import annotations

import io
import pickle
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from appliance.local import LocalRoles
from appliance.placement.cores import UnlimitedCores
from appliance.role_group import names_of
from tests.support.roles.arenas import StrictArena, StrictSlab
from waferstream.core.messages.messages import Envelope
from waferstream.core.messages.partial_sum import PartialSum
from waferstream.core.roles.role import Job, Report, RoleContext, RoleSpec

Route = tuple[str, str]
Choose = Callable[[list[Route]], Route]


ORDERS = st.builds(random.Random, st.integers(0, 2**32 - 1))
"""Random orders of messages: one drawn number each, since drawing every choice takes longer."""


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
        self.process_of = {name: spec.name for spec in specs for name in names_of(spec)}
        self.delivered: list[Envelope] = []

    def run(self, job: Job) -> list[Report]:
        self.delivered.clear()
        waiting: dict[Route, deque[Envelope]] = {}

        def post(envelope: Envelope) -> None:
            waiting.setdefault((envelope.source, envelope.target), deque()).append(envelope)

        self.jobs = {name: role.begin(job) for name, role in self.roles.items()}
        for state in self.jobs.values():
            for envelope in state.start():
                post(envelope)
        self.unfinished_at_first = [name for name, s in self.jobs.items() if not s.finished]
        while waiting or any(state.is_working for state in self.jobs.values()):
            if not waiting:
                for state in self.jobs.values():
                    for answer in state.work() if state.is_working else ():
                        post(answer)
                continue
            route = self.choose(list(waiting))
            envelope = waiting[route].popleft()
            if not waiting[route]:
                del waiting[route]
            self.delivered.append(envelope)
            process = self.process_of[envelope.target]
            for answer in self.jobs[process].handle(envelope):
                post(answer)
            self.after(process)
        assert all(state.finished for state in self.jobs.values())
        return [state.report() for state in self.jobs.values()]

    def after(self, role: str) -> None:
        """Do nothing more: subclasses look at a role's job after each message."""


class RepicklingOffice(SortingOffice):
    """Pickles and restores a job state after each message, unless it works or holds a sum in a slab.

    Slabs are mapped to themselves, as a link maps its handles.
    """

    def __init__(self, specs: Sequence[RoleSpec], choose: Choose = oldest_first) -> None:
        super().__init__(specs, choose)
        self.repickled: Counter[str] = Counter()

    def after(self, role: str) -> None:
        if self.jobs[role].is_working:
            return
        stream = io.BytesIO()
        pickler = _StatePickler(stream)
        pickler.dump(self.jobs[role])
        if pickler.holds_sum:
            return
        stream.seek(0)
        unpickler = _StateUnpickler(stream)
        unpickler.slabs = pickler.slabs
        job = unpickler.load()
        job.role = self.roles[role]
        self.jobs[role] = job
        self.repickled[role] += 1


class _StatePickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream)
        self.slabs: list[StrictSlab] = []
        self.holds_sum = False

    def persistent_id(self, obj: object) -> int | None:
        self.holds_sum |= isinstance(obj, PartialSum) and obj.memory is not None
        if not isinstance(obj, StrictSlab):
            return None
        self.slabs.append(obj)
        return len(self.slabs) - 1


class _StateUnpickler(pickle.Unpickler):
    slabs: list[StrictSlab]

    def persistent_load(self, pid: int) -> StrictSlab:
        return self.slabs[pid]
