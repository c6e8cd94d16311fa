"""The sparsity of a step: densities, whole gradients and changes of masks, also on average."""

from __future__ import annotations

from typing import Any

import pytest

from memoryx.sparsity.step_sparsity import (
    bytes_of_change,
    mean_sparsity,
    sparsity_by_optimizer,
    sparsity_of_step,
)
from tests.support.plain_torch.plain_sgd import plain_sgd
from waferstream.core.program.program import TensorSpec
from waferstream.core.sparsity.levels import Constant, Exp
from waferstream.core.sparsity.spec import UpdateSteps, WeightSparsity
from waferstream.machine.densities import StepSparsity

SHAPE = (40, 50)
PARAMETERS = {name: TensorSpec(name, SHAPE, "float32") for name in ("up", "down", "bias")}
RISING = Exp(init=0.0, gamma=-0.1, final=0.9)


def weight(name: str = "up", **changes: Any) -> WeightSparsity:
    made = {"algorithm": "gmp", "level": RISING, "update": UpdateSteps(freq=4, start=4)}
    return WeightSparsity(name, **{**made, **changes})


def test_step_finds_the_density_that_the_update_before_has_left() -> None:
    """Update 4 changes the mask for step 5; its selection is charged at the end of step 4."""
    found = [sparsity_of_step([weight()], PARAMETERS, 8, update) for update in range(1, 7)]
    assert [each.densities.get("up", 1.0) for each in found[:4]] == [1.0] * 4
    assert found[4].densities == {"up": weight().density(SHAPE, 4)}
    assert found[4].densities["up"] < 1
    assert found[5].densities == found[4].densities
    assert [each.mask_bytes for each in found] == [
        {"up": bytes_of_change(2000, 8)} if update == 4 else {} for update in range(1, 7)
    ]


def test_change_of_a_mask_moves_keys_mask_master_and_state() -> None:
    """Four passes over keys of 4 bytes; then 1 bit, master and state are read and written."""
    assert bytes_of_change(1000, 8) == 1000 * (4 * 4 + 2 * (4 + 8)) + 2 * 125


def test_rigl_reads_whole_gradients_when_its_mask_changes() -> None:
    spec = weight(algorithm="rigl", level=Constant(value=0.75), update=UpdateSteps(freq=2))
    one, two = (sparsity_of_step([spec], PARAMETERS, 0, update) for update in (1, 2))
    assert one.gradient_densities == one.densities == {"up": 0.25}
    assert two.densities == {"up": 0.25}
    assert two.gradient_densities == {"up": 1.0}


def test_static_masks_cost_the_same_in_every_step() -> None:
    static = weight(algorithm="static", level=Constant(value=0.5), update=None)
    optimizer = plain_sgd(PARAMETERS, 0.1, sparsity=(static,))
    found = {repr(sparsity_by_optimizer(optimizer, PARAMETERS, update)) for update in (1, 2, 99)}
    assert found == {repr(StepSparsity({"up": 0.5}))}
    assert sparsity_by_optimizer(plain_sgd(PARAMETERS, 0.1), PARAMETERS, 5) == StepSparsity()
    assert sparsity_by_optimizer(None, PARAMETERS) == StepSparsity()


@pytest.mark.parametrize(
    "update",
    [UpdateSteps(freq=3), UpdateSteps(freq=4, start=4, stop=20), UpdateSteps(steps=(0, 7, 30))],
)
@pytest.mark.parametrize("algorithm", ["gmp", "rigl"])
def test_mean_is_that_of_all_steps(algorithm: str, update: UpdateSteps) -> None:
    """Of densities, of gradients and of the bytes that changes of masks move."""
    specs = [weight(name, algorithm=algorithm, update=update) for name in ("up", "down")]
    steps = [sparsity_of_step(specs, PARAMETERS, 4, number) for number in range(1, 31)]
    found = mean_sparsity(specs, PARAMETERS, 4, 30)
    for name in ("up", "down"):
        densities = [step.densities.get(name, 1.0) for step in steps]
        assert found.densities[name] == pytest.approx(sum(densities) / 30)
        moved = sum(step.mask_bytes.get(name, 0) for step in steps)
        assert found.mask_bytes[name] == pytest.approx(moved / 30, abs=1)
        whole = sum(step.whole_gradients.get(name, 0.0) for step in steps) / 30
        assert found.whole_gradients.get(name, 0.0) == pytest.approx(whole, abs=0.05)


def test_mean_of_a_long_run_is_taken_of_evenly_spaced_steps() -> None:
    """Within half a percent of the mean of all steps."""
    spec = weight(update=UpdateSteps(freq=7, start=7), level=Exp(init=0.0, gamma=-0.001, final=0.9))
    every = [sparsity_of_step([spec], PARAMETERS, 0, number) for number in range(1, 3001)]
    mean = sum(each.densities.get("up", 1.0) for each in every) / 3000
    assert mean_sparsity([spec], PARAMETERS, 0, 3000).densities["up"] == pytest.approx(mean, 0.005)


@pytest.mark.parametrize(
    "update",
    [
        UpdateSteps(),
        UpdateSteps(freq=3),
        UpdateSteps(freq=5, start=2, stop=13),
        UpdateSteps(freq=4, start=8),
        UpdateSteps(steps=(0, 3, 9)),
    ],
)
def test_latest_change_is_the_last_one_so_far(update: UpdateSteps) -> None:
    for number in range(20):
        changes = [each for each in range(1, number + 1) if update.includes(each)]
        assert update.latest(number) == max(changes, default=None)
