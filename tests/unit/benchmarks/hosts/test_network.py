"""Networks of hosts in miniature."""

import subprocess
from contextlib import ExitStack

import pytest

from benchmarks.hosts.network import Network, refusal


def existing() -> set[str]:
    """Return the names of this computer's namespaces."""
    listed = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True)
    return {line.split()[0] for line in listed.stdout.splitlines()}


@pytest.mark.skipif(refusal() is not None, reason=str(refusal()))
def test_a_process_may_have_two_networks_at_a_time() -> None:
    """Each has a host 0 of its own, and is removed alone."""
    with ExitStack() as all_undo:
        undos = [all_undo.enter_context(ExitStack()) for _ in range(2)]
        first, second = (Network(undo) for undo in undos)
        first.add(0)
        second.add(0)
        assert {first.namespace(0), second.namespace(0)} <= existing()
        undos[0].close()
        assert existing() & {first.namespace(0), second.namespace(0)} == {second.namespace(0)}
    assert not existing() & {first.namespace(0), second.namespace(0)}
