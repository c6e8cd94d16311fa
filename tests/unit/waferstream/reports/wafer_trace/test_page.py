"""The page of a trace: it loads nothing, and its cycles are those of the simulator."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from csnode.engine.spec import KERNEL_NAMES
from csnode.fabric.simulator.activity import Work
from waferstream.reports.wafer_trace.kernel_trace import WORK_NAMES, KernelTrace
from waferstream.reports.wafer_trace.page import EXPLANATIONS, trace_page


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="trace">(.*?)</script>', page, re.S)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_busy_cycles_and_hops_of_the_page_are_those_of_the_simulator(trace: KernelTrace) -> None:
    data, outcome = data_of(trace_page(trace, "")), trace.outcome
    work = np.array(data["work"]).reshape(-1, 4)
    assert (data["rows"], data["columns"], data["cycles"]) == (3, 3, outcome.cycles)
    busy = np.bincount(work[:, 0], work[:, 2], 9).reshape(3, 3)
    assert (busy == outcome.busy_cycles).all()
    assert len(data["hops"]) == 6 * outcome.hops
    assert data["kinds"] == list(WORK_NAMES.values())


def test_states_show_busy_pes_only(trace: KernelTrace) -> None:
    """Two threads of a PE may work in one cycle, so states are busy for at most as long."""
    busy = (trace.states > 0).sum(axis=1).reshape(3, 3)
    assert (busy <= trace.outcome.busy_cycles).all()
    assert (busy > 0).all()
    assert set(np.unique(trace.states)) == {0, *(work + 1 for work in Work)}


def test_page_is_self_contained(trace: KernelTrace) -> None:
    page = trace_page(trace, "run.py --wafer_trace decoder.0")
    addresses = re.findall(r"(?:src|href)=\"([^\"]*)\"", page)
    assert all(address.startswith("#") for address in addresses)
    assert set(re.findall(r"https?://[^\"' ]*", page)) == {"http://www.w3.org/2000/svg"}
    for loading in ("url(", "@import", "fetch(", "XMLHttpRequest", "import("):
        assert loading not in page
    assert "gpt&lt;2&gt;" in page
    assert "gpt<2>" not in page


def test_every_kernel_is_explained() -> None:
    assert set(EXPLANATIONS) == set(KERNEL_NAMES)
