"""The step as a transaction: when a weight server may update, and what it keeps of finished steps.

In a protected or verified job every CS node and every server that updates weights tells all these
servers when it has done its part of a step (StepDone), and a server updates nothing of step t + 1
before it has heard of step t from all. From that follows:

    - At any moment at most one step is updated in part, over all servers together. One journal of
      before-images takes it back (memoryx.store.journal).
    - The results of every step that cannot be taken back lie in a weight server, whatever happens
      to the nodes that computed them.

The last step of a job is no exception to the first, but its results stay with the nodes: if one of
them is lost before it has reported, the step is taken back and runs again.

In a verified job the nodes vote with the end of a step, and a step on which they differ is never
committed (waferstream.core.roles.verification).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from waferstream.core.messages.messages import StepDone
from waferstream.core.roles.installation import Installation
from waferstream.core.roles.names import node_name
from waferstream.core.roles.role import Job, Progress, Report
from waferstream.core.roles.verification import Comparison


class Commitment:
    """What one weight server has heard of the steps of one job.

    Args:
        name: The server.
        installation: The program of the job.
        job: The job; if it is neither protected nor verified, every update is allowed and nothing
            is kept.
        num_updates: The parameters that a step updates on this server.
    """

    def __init__(self, name: str, installation: Installation, job: Job, num_updates: int) -> None:
        self._name = name
        self._attempt = job.attempt
        self._last = job.last_step
        keepers = installation.keepers
        takes_part = job.is_committed and name in keepers
        self._nodes = [node_name(node) for node in range(installation.rounds.num_nodes)]
        self._others = [keeper for keeper in keepers if keeper != name] if num_updates else []
        self._parties = {*self._nodes, *(keepers if num_updates else ())} if takes_part else set()
        # Nodes say nothing about the last step, unless they vote on it.
        self._num_votes = len(self._nodes) if takes_part and job.verification.is_on else 0
        self._comparison = Comparison(job.verification)
        self._num_updates = num_updates
        self._updated = 0  # parameters of the step after ``_applied_step``
        self._done = dict.fromkeys(self._parties, job.first_step - 1)  # last step by party
        # How many have done which step last: not all of many nodes are looked at for each message.
        self._num_at = Counter(self._done.values())
        # A server without updates has applied them all.
        self._applied_step = job.first_step - 1 if num_updates else job.last_step
        self._begun_step = self._applied_step
        self._kept = Report(name)  # results and findings of the nodes

    def progress(self, own: Report) -> Progress:
        """Return how far the job is, from the server's own report and what nodes reported."""
        kept_step = min((self._done[n] for n in self._nodes if n in self._done), default=0)
        findings = [*own.findings, *self._kept.findings]
        report = replace(own, results=dict(self._kept.results), findings=findings)
        return Progress(self._attempt, self._applied_step, kept_step, report)

    def steps_held(self) -> frozenset[int]:
        """Return the steps after which the weights of this server stand: two in an update."""
        return frozenset((self._applied_step, self._begun_step) if self._num_updates else ())

    @property
    def finished(self) -> bool:
        """Whether every message about a step of this job has arrived."""
        return self._num_at[self._last] >= self._num_votes and self.allows(self._last)

    def allows(self, step: int) -> bool:
        """Return whether parameters may be updated that belong to a step."""
        return all(done >= step - 1 for done in self._num_at)

    def behind(self, step: int) -> tuple[str, ...]:
        """Return the nodes and servers that have not done the step before ``step``."""
        return tuple(party for party, done in self._done.items() if done < step - 1)

    def note(self, party: str, message: StepDone) -> None:
        """Note that a node or server has done its part of a step.

        Raises:
            DisputedBitsError: Nodes have computed different gradients.
        """
        self._comparison.take(party, message.step, message.votes)
        self._num_at.subtract((self._done[party],))
        self._done[party] = message.step
        self._num_at.update((message.step,))
        self._num_at += Counter()  # without those at zero
        for index, values in message.results:
            self._kept.results[message.step, index] = values
        self._kept.findings += message.findings

    def note_begin(self, step: int) -> None:
        """Note that an update of a step begins, which an interrupt may leave undone in part."""
        self._begun_step = step

    def note_updates(self, step: int, count: int) -> Iterator[tuple[str, StepDone]]:
        """Note updates of this server; yield what it tells the others when it has done a step."""
        self._updated += count
        if self._updated < self._num_updates:
            return
        self._updated, self._applied_step = 0, step
        if self._name in self._parties and step < self._last:
            self.note(self._name, StepDone(step))
            yield from ((other, StepDone(step)) for other in self._others)
