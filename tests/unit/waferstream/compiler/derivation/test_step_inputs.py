"""Constants that differ between two recordings of a step become inputs of its program."""

from __future__ import annotations

from typing import Any

import torch

from tests.support.roles.local_machine import FP32, Regression, random_batches
from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.derivation.recording import record
from waferstream.compiler.derivation.step_inputs import (
    differences,
    marked,
    replace_marked,
    value_at,
)
from waferstream.core.program.program import StepInput


def recorded(factor: Any, size: int = 2, **options: Any) -> Captured:
    """Return a step whose loss is multiplied by ``factor``."""
    model = Regression()
    x, y = random_batches(1, size)[0].values()

    def step(batch: Any) -> list[torch.Tensor]:
        loss = model(*batch) * factor
        loss.backward()
        return [loss]

    return record(step, model, [("x", x), ("y", y)], FP32, **options).captured


def test_equal_recordings_differ_in_nothing() -> None:
    """Also where the samples are a symbol, which is another one in each recording."""
    assert differences(recorded(0.5), recorded(0.5)) == set()
    symbolic = [recorded(0.5, for_all_sizes=True) for _ in range(2)]
    assert differences(*symbolic) == set()


def test_numbers_are_found_in_forward_and_backward_pass() -> None:
    """Each with the value of its recording."""
    one, other = recorded(0.5), recorded(0.1)
    places = differences(one, other)
    assert places is not None
    assert len(places) == 2
    assert {value_at(other, place).item() for place in places} == {0.1}


def test_tensors_are_copies() -> None:
    """The program may write to its tensors after the recording."""
    factor = torch.ones(())
    one = recorded(factor)
    factor.mul_(3.0)
    other = recorded(factor)
    places = differences(one, other)
    assert places
    assert {value_at(one, place).item() for place in places} == {1.0}
    assert {value_at(other, place).item() for place in places} == {3.0}


def test_other_ops_have_no_common_program() -> None:
    """Neither with other shapes of constants."""
    assert differences(recorded(0.5), recorded(torch.ones(()))) is None
    assert (
        differences(recorded(torch.ones(())), recorded(torch.ones((), dtype=torch.float64))) is None
    )


def test_marked_constants_become_inputs() -> None:
    """Numbers and tensors; the marks of the recording end with the block."""
    one, other = recorded(0.5), recorded(0.1)
    names = {place: f"step_input_{i}" for i, place in enumerate(differences(one, other) or ())}
    with marked(one, names):
        inputs = replace_marked(one)
    assert {*inputs} == {StepInput(name, is_number=True) for name in names.values()}
    targets = [node.target for node in one.graph.find_nodes(op="placeholder")]
    assert {*names.values()} <= {*targets}
    assert replace_marked(other) == ()
