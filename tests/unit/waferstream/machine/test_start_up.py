"""Start-up and checkpoint times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waferstream.core.units import PS_PER_S, seconds
from waferstream.machine.hardware import MachineSpec, StartUpSpec
from waferstream.machine.start_up import (
    StartUp,
    checkpoint_ps,
    compile_ps,
    initial_weights_ps,
    start_up,
)

SPEC = StartUpSpec()
LLAMA2_7B = 6_740_000_000
sizes = st.integers(0, 10**13)


def test_what_was_fitted_meets_its_calibration_rows() -> None:
    """T0088 and T0089 (programming), T0092 (initial weights), T0098 (checkpoint)."""
    for system, programming_s in (("CS-2", 110), ("CS-3", 230)):
        machine = MachineSpec.model_validate({"system": system})
        assert start_up(machine, LLAMA2_7B, 66).programming_ps == programming_s * PS_PER_S
    assert seconds(initial_weights_ps(SPEC, LLAMA2_7B)) == pytest.approx(13.2, rel=1e-6)
    assert seconds(checkpoint_ps(SPEC, LLAMA2_7B, 8)) == pytest.approx(464, rel=1e-6)


def test_compiling_takes_minutes_to_an_hour() -> None:
    """The site guide's words, for 2 to 170 layers, forward and backward."""
    for layers in (2, 24, 96, 170):
        assert 60 * PS_PER_S < compile_ps(SPEC, 2 * layers) <= 3600 * PS_PER_S


def test_weights_are_sent_while_the_device_is_programmed() -> None:
    """After compiling, the longer of the two counts."""
    assert StartUp(10, 7, 3).total_ps == StartUp(10, 3, 7).total_ps == 17


def test_a_start_is_described_in_one_line() -> None:
    """Each part with its unit."""
    line = str(start_up(MachineSpec(), LLAMA2_7B, 66))
    assert line == "compile 780.00 s unless cached, programming 110.00 s, initial weights 13.20 s"


def test_a_program_in_the_cache_is_not_compiled_again() -> None:
    """Its start is that of the others without compiling."""
    machine = MachineSpec()
    first, again = (start_up(machine, 10**9, 50, is_compiled=cached) for cached in (False, True))
    assert again.compile_ps == 0
    assert again.total_ps == first.total_ps - first.compile_ps < first.total_ps


def test_release_1_sends_weights_as_slowly_as_checkpoints() -> None:
    """One process instead of several side by side."""
    old, new = (initial_weights_ps(SPEC, LLAMA2_7B, release=release) for release in (1, 2))
    assert old == SPEC.transfer_start_ps + checkpoint_ps(SPEC, LLAMA2_7B, 0)
    assert old > 5 * new


@given(sizes, sizes, st.integers(0, 12))
def test_more_parameters_never_take_less_time(one: int, other: int, state_bytes: int) -> None:
    """Neither to send nor to save."""
    few, many = sorted((one, other))
    assert initial_weights_ps(SPEC, few) <= initial_weights_ps(SPEC, many)
    assert checkpoint_ps(SPEC, few, state_bytes) <= checkpoint_ps(SPEC, many, state_bytes)


@pytest.mark.parametrize("key", sorted(set(StartUpSpec.model_fields)))
def test_each_number_moves_a_time(key: str) -> None:
    """Twice the bandwidth is faster, twice a fixed time is slower, somewhere."""

    def times(spec: StartUpSpec) -> list[int]:
        return [
            compile_ps(spec, 10),
            initial_weights_ps(spec, LLAMA2_7B),
            checkpoint_ps(spec, LLAMA2_7B, 8),
        ]

    doubled = times(SPEC.model_copy(update={key: 2 * getattr(SPEC, key)}))
    pairs = list(zip(times(SPEC), doubled, strict=True))
    if key.endswith("_per_s"):
        pairs = [(after, before) for before, after in pairs]
    assert all(less <= more for less, more in pairs)
    assert any(less < more for less, more in pairs)
