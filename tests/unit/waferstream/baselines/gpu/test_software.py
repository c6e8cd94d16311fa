"""Presets of software stacks: every number stated, with a source."""

import pytest

from tests.support.errors import raises
from waferstream.baselines.gpu.software import FSDP, MEGATRON, PRESETS, SoftwareSpec
from waferstream.core.errors import ConfigError
from waferstream.machine.hardware.sourced import Sourced

SWITCHES = {"name", "launches_every_op", "flash_attention", "gathers_matrices", "reduces_to_owner"}


def test_software_spec_has_no_default_of_any_stack() -> None:
    """A number that a preset forgets is an error, never that of FSDP."""
    assert all(field.is_required() for field in SoftwareSpec.model_fields.values())


@pytest.mark.parametrize("name", PRESETS)
def test_software_preset_has_a_source_for_every_number(name: str) -> None:
    """Its own, or that of the stack it is a variant of."""
    values = PRESETS[name].values
    assert values.keys() == SoftwareSpec.model_fields.keys()
    numbers = {key: value for key, value in values.items() if key not in SWITCHES}
    assert all(isinstance(value, Sourced) and value.source for value in numbers.values())


def test_exposed_share_cannot_exceed_one() -> None:
    """It is a share of communication."""
    with raises(ConfigError, "out-of-range"):
        SoftwareSpec.model_validate(FSDP.model_dump() | {"exposed_share": 1.1})


def test_megatron_overlaps_data_parallel_communication() -> None:
    """FSDP exposes all of it (G0007 to G0159), Megatron none (source of G0402)."""
    assert (FSDP.exposed_share, MEGATRON.exposed_share) == (1, 0)
