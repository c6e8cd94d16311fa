"""Why a micro-batch has its size, and what limits the next one, in words with numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.waferstream.simulation.test_study import study as study  # noqa: PLC0414
from waferstream.core.program.micro_batches import MicroBatchPolicy
from waferstream.machine.hardware import CS2, MachineSpec, override
from waferstream.machine.sram import code_bytes
from waferstream.simulation.explanation import explain
from waferstream.simulation.study import Study
from waferstream.simulator.simulator import Simulator


def small(study: Study, kib: int) -> Study:
    """Return the study on a wafer with little room."""
    wafer = override(CS2, sram_bytes=code_bytes(CS2) + kib * 1024)
    return replace(study, simulator=Simulator(study.simulator.program, MachineSpec(system=wafer)))


def test_blocks_are_named(study: Study) -> None:
    """With the segments that run in some."""
    narrow = small(study, 53)
    text = explain(replace(narrow, policy=MicroBatchPolicy(None)), 1)
    assert "in 2 to 2 blocks" in text
    assert "blocks    " not in explain(narrow, 1)


def test_whole_share_has_no_next_size(study: Study) -> None:
    text = explain(study, 1)
    assert "Micro-batch of 48 samples on 1 system" in text
    assert "the one of the fewest rounds that fits" in text
    assert "a system's whole share of the batch is in one micro-batch" in text


def test_policy_that_limits_the_size_is_named(study: Study) -> None:
    text = explain(replace(study, policy=MicroBatchPolicy("auto")), 1)
    assert "Micro-batch of 6 samples" in text
    assert "would fit, too: the policy limits the size" in text


@pytest.mark.parametrize("kib", [30, 45])
def test_memory_that_limits_the_next_size_is_named(study: Study, kib: int) -> None:
    """The size that fits fits, and the next one does not."""
    narrow = small(study, kib)
    most = narrow.simulator.largest_micro_batch
    text = explain(narrow, 1)
    assert 1 <= most < 48
    assert f"{most:,} with their inputs on activation servers" in text
    assert f"than the {most:,} that fit" in text
