"""Keys of both files, with defaults, units and sources."""

from __future__ import annotations

from functools import cache

import pytest

from tests.support.errors import raises
from waferstream.config.params import Params
from waferstream.config.schema.files import MEANINGS
from waferstream.config.schema.keys import ConfigKey, all_keys, find_keys
from waferstream.core.config import load_yaml
from waferstream.core.errors import ConfigError

KEYS = cache(all_keys)


def the(name: str) -> ConfigKey:
    (key,) = find_keys(name, KEYS())
    return key


def test_number_of_the_machine_has_its_source() -> None:
    key = the("swarmx.port_bandwidth_bytes_per_s")
    assert (key.path, key.file) == ("machine.swarmx.port_bandwidth_bytes_per_s", "cluster")
    assert (key.default, key.unit, key.status) == ("12500000000", "bytes/s", "published")
    assert key.source == "100 Gb/s NICs; glossary"


def test_number_of_two_products_has_both_defaults() -> None:
    key = the("system.cores")
    assert key.default == "CS-2: 850000, CS-3: 900000"
    assert "CS-2: zhang; white paper (published)" in key.source


@pytest.mark.parametrize(
    ("name", "default", "unit"),
    [
        ("loop.max_steps", "null", "steps"),
        ("runtime.link", "auto", ""),
        ("AdamW.betas", "[0.9, 0.999]", ""),
        ("LinearLR.total_iters", "", ""),
        ("cluster_config.job_time_sec", "null", "s"),
        ("machine.system.clock_hz", "CS-2: 1100000000, CS-3: 1085000000", "Hz"),
        ("init.seed", "0", ""),
    ],
)
def test_keys_have_default_and_unit(name: str, default: str, unit: str) -> None:
    key = the(name)
    assert (key.default, key.unit) == (default, unit)


def test_keys_of_registered_models_are_listed_for_each() -> None:
    sections = {key.section for key in find_keys("trainer.init.model.hidden_size", KEYS())}
    assert {"BertConfig (bert)", "DitConfig (dit)"} <= sections


def test_every_key_of_params_is_listed() -> None:
    paths = {key.path for key in KEYS()}
    for name, field in Params.model_fields["trainer"].annotation.model_fields.items():  # type: ignore[union-attr]
        assert f"trainer.{field.alias or name}" in paths


@pytest.mark.parametrize("name", ["hiden_size", "trainer.init.looop.max_steps"])
def test_unknown_key_is_refused_with_the_nearest(name: str) -> None:
    with raises(ConfigError, "unknown-key") as caught:
        find_keys(name, KEYS())
    assert caught.value.remedy is not None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cluster_config.mount_dirs", "string or list of string or null"),
        ("init.loggers", "ProgressLogger or TensorBoardLogger or mapping or list of these or null"),
        ("layers_activation", "list of (gelu, quick_gelu, relu, silu or null) or null"),
    ],
)
def test_entry_of_a_list_and_the_list_are_one_kind(name: str, kind: str) -> None:
    assert {key.type for key in find_keys(name, KEYS())} == {kind}


def test_every_key_has_a_meaning_or_a_source() -> None:
    """Its docstring, or the line for its name in meanings.yaml."""
    assert [key.path for key in KEYS() if not (key.meaning or key.source)] == []


def test_every_line_of_the_meanings_is_shown() -> None:
    shown = {key.meaning for key in KEYS()}
    assert [name for name, text in load_yaml(MEANINGS).items() if text not in shown] == []
