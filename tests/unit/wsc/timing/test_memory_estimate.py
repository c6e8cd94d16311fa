"""What a model takes in training, and which room holds it."""

import pytest

from wsc.core.errors import ConfigError
from wsc.timing.hardware import CS2, CS3, MemoryXSpec
from wsc.timing.memory_estimate import STATE_BYTES, memory_estimate

BILLION = 10**9


def test_adam_takes_sixteen_bytes_per_parameter_either_way():
    """Two 16-bit copies, a master and two moments; or master, sum and moments in MemoryX."""
    estimate = memory_estimate(7 * BILLION, "AdamW", CS2, MemoryXSpec())
    assert estimate.resident_bytes == 16 * 7 * BILLION
    assert estimate.memoryx_bytes == 16 * 7 * BILLION
    assert estimate.state_bytes == 8 * 7 * BILLION


@pytest.mark.parametrize("wafer", [CS2, CS3])
def test_the_largest_model_that_a_wafer_could_hold(wafer):
    """16 bytes of SRAM for each parameter with Adam, and not one parameter more."""
    largest = wafer.sram_bytes // 16
    assert memory_estimate(largest, "Adam", wafer, MemoryXSpec()).fits_sram
    assert not memory_estimate(largest + 1, "Adam", wafer, MemoryXSpec()).fits_sram


def test_what_exceeds_dram_goes_to_flash_and_then_nowhere():
    """The tier follows from the sizes of MemoryX, which cluster.yaml may change."""
    memoryx = MemoryXSpec(dram_bytes=16 * BILLION, flash_bytes=16 * BILLION)
    rooms = [
        memory_estimate(parameters, "Adam", CS3, memoryx).room
        for parameters in (BILLION, BILLION + 1, 2 * BILLION, 2 * BILLION + 1)
    ]
    assert rooms == ["DRAM", "flash", "flash", "none"]


def test_a_lighter_optimizer_takes_less():
    """State is the only part that the optimizer changes."""
    sizes = {
        name: memory_estimate(BILLION, name, CS3, MemoryXSpec()).memoryx_bytes
        for name in STATE_BYTES
    }
    assert sizes["SGD"] < sizes["Lion"] < sizes["Adam"]
    assert sizes["Adam"] - sizes["SGD"] == 8 * BILLION


@pytest.mark.parametrize(
    ("parameters", "optimizer", "where"), [(0, "Adam", "parameters"), (1, "Adan", "optimizer")]
)
def test_a_model_without_parameters_and_an_unknown_optimizer_are_refused(
    parameters, optimizer, where
):
    """With the place, and for a misspelt name the nearest one."""
    with pytest.raises(ConfigError) as refused:
        memory_estimate(parameters, optimizer, CS3, MemoryXSpec())
    assert refused.value.where == where
    if optimizer == "Adan":
        assert "Adam" in (refused.value.remedy or "")
