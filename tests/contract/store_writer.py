"""A process that writes to a store: counts in many changes, or stays inside of one."""

from __future__ import annotations

import sys

from waferstream.management.model.event import Labelled, Submitted
from waferstream.management.model.workflow import Submission
from waferstream.management.store.changes import Changes
from waferstream.management.store.opening import open_store

SHARED = "wflow-shared"


def count(changes: Changes) -> None:
    """Add one to the number in a label, which is lost if another change comes between."""
    workflow = changes.workflow(SHARED)
    assert workflow is not None
    number = int(workflow.submission.labels.get("count", "0")) + 1
    changes.note(SHARED, Labelled(labels={"count": str(number)}), 1.0)


def main(place: str, what: str) -> None:
    """Count so often, or ``stay``."""
    store = open_store(place)
    if what == "stay":
        with store.change() as changes:
            changes.note("wflow-lost", Submitted(user="a", submission=Submission()), 1.0)
            print("inside", flush=True)
            sys.stdin.read()
    for _ in range(int(what)):
        with store.change() as changes:
            count(changes)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
