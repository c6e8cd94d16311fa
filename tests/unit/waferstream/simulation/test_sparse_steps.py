"""Which zeros a simulation charges: the mean over the run, or those of a stated step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memoryx.optim.cost import UpdateCost
from tests.support.errors import raises
from tests.support.programs.small_programs import program
from waferstream.config.sections.init import LoopConfig
from waferstream.core.errors import ConfigError
from waferstream.core.sparsity.levels import Exp
from waferstream.core.sparsity.spec import UpdateSteps, WeightSparsity
from waferstream.machine.densities import StepSparsity
from waferstream.simulation.captured import CapturedStep, load_captured, store_captured
from waferstream.simulation.sparse_steps import simulated_sparsity

DENSE = CapturedStep(program(), program(), UpdateCost(8, 15), False, None)
NAME = DENSE.small.parameters[0].name
PRUNED = replace(
    DENSE,
    sparse=(
        WeightSparsity(
            NAME, "gmp", Exp(init=0.0, gamma=-0.5, final=0.9), update=UpdateSteps(freq=2, start=2)
        ),
    ),
)


def test_mean_over_the_run_counts_by_default() -> None:
    found, line = simulated_sparsity(PRUNED, LoopConfig(max_steps=40))
    late, _ = simulated_sparsity(PRUNED, LoopConfig(max_steps=40), 40)
    assert late.densities[NAME] < found.densities[NAME] < 1
    assert line.endswith("in 1 sparse weight: mean over steps 1 to 40")


def test_stated_step_counts_as_it_finds_its_weights() -> None:
    """A run without a stated length is simulated in its first step."""
    found, line = simulated_sparsity(PRUNED, LoopConfig(max_steps=40), 3)
    assert found.densities[NAME] < 1
    assert line.endswith("step 3")
    first, line = simulated_sparsity(PRUNED, LoopConfig())
    assert (first, line) == (StepSparsity(), "0.0% zeros in 1 sparse weight: step 1")


def test_dense_model_has_no_line() -> None:
    assert simulated_sparsity(DENSE, LoopConfig(max_steps=40)) == (StepSparsity(), "")


@pytest.mark.parametrize("number", [0, 41])
def test_step_beyond_the_run_is_refused(number: int) -> None:
    with raises(ConfigError, "sparsity-step-beyond-run"):
        simulated_sparsity(PRUNED, LoopConfig(max_steps=40), number)


def test_step_of_a_dense_model_is_refused() -> None:
    with raises(ConfigError, "sparsity-step-without-sparsity"):
        simulated_sparsity(DENSE, LoopConfig(), 1)


def test_cached_step_keeps_its_sparse_weights(tmp_path: Path) -> None:
    store_captured(PRUNED, tmp_path / "step.json")
    assert load_captured(tmp_path / "step.json") == PRUNED
