"""The readers of what a store of the management has kept."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.fuzz.campaign import Target
from benchmarks.fuzz.mutations import as_json, of_bytes, of_trees
from waferstream.core.config import Record
from waferstream.management.model.event import (
    Ended,
    Fact,
    JobCreated,
    Labelled,
    Placed,
    Predicted,
    Progressed,
    Submitted,
    after,
    submitted,
)
from waferstream.management.model.job import Phase
from waferstream.management.model.workflow import (
    Placement,
    Prediction,
    Progress,
    Submission,
    Workflow,
)
from waferstream.management.store.bodies import read_body, read_fact

_FIRST = Submitted(user="a", submission=Submission(words=("--params", "p.yaml"), num_csx=2))
_OTHERS: tuple[Fact, ...] = (
    JobCreated(job="wsjob-1", of="execute"),
    Labelled(labels={"team": "x", "gone": None}),
    Predicted(prediction=Prediction(seconds={1: 2.0, 2: 1.0})),
    Placed(placement=Placement(systems=("system-0", "system-1"), group="group-0")),
    Progressed(progress=Progress(step=1, total_steps=2, loss=0.5)),
    Ended(result=Phase.SUCCEEDED),
)


def store_targets() -> tuple[Target, ...]:
    """Return the readers of workflows and of events."""
    workflow = _workflow()
    facts = [_tree(fact) for fact in (_FIRST, *_OTHERS)]

    def read_workflow(content: bytes) -> object:
        return read_body(Workflow, content.decode())

    def read_event(content: bytes) -> object:
        return read_fact(content.decode("utf-8", "replace"))

    texts = [as_json(fact) for fact in facts]
    return (
        Target("stored workflow", 2, of_trees([_tree(workflow)], as_json), read_workflow),
        Target("stored event", 2, of_trees(facts, as_json), read_event),
        Target("text of a stored event", 2, of_bytes(texts), read_event),
    )


def _workflow() -> Workflow:
    workflow = submitted("wflow-1", 1.0, _FIRST)
    for time_s, fact in enumerate(_OTHERS):
        workflow = after(workflow, fact, float(time_s))
    return workflow


def _tree(record: Record) -> Any:
    return json.loads(record.model_dump_json())
