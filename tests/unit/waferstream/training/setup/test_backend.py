"""Flags of params.yaml become those of ``cstorch.backends``, each in its scope."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cstorch
from tests.support.runs.tiny_run import run_here, write_run
from waferstream.config.params import InitConfig
from waferstream.config.sections.flags import Flags
from waferstream.training.setup.backend import global_flags, scoped_flags

FLAGS: Any = cstorch.backends.csx


def init(*callbacks: dict[str, Any]) -> InitConfig:
    return InitConfig.model_validate({"model": {"name": "gpt2"}, "callbacks": list(callbacks)})


def test_scoped_flags_win_and_end_with_their_scope() -> None:
    config = init(
        {"GlobalFlags": {"csx.performance.transfer_processes": 2, "csx.debug.ini": {"a": 1}}},
        {"ScopedTrainFlags": {"csx.performance.transfer_processes": 3}},
        {"ScopedValidateFlags": {"csx.performance.micro_batch_size": 4}},
    )
    before = FLAGS.performance.transfer_processes, FLAGS.performance.micro_batch_size
    with global_flags(config):
        assert FLAGS.debug.ini.a == 1
        with scoped_flags(config, "train"):
            assert FLAGS.performance.transfer_processes == 3
            assert FLAGS.performance.micro_batch_size == "auto"
        with scoped_flags(config, "validate"):
            assert FLAGS.performance.transfer_processes == 2
            assert FLAGS.performance.micro_batch_size == 4
    assert (FLAGS.performance.transfer_processes, FLAGS.performance.micro_batch_size) == before


def test_flag_of_the_backend_acts_unless_a_callback_has_it() -> None:
    """Stock files of vision transformers have one there."""
    name = "csx.debug.implicit_cast_cb16_to_fp32"
    sections: dict[str, Any] = {"model": {"name": "gpt2"}, "backend": {name: True}}
    for callbacks, expected in (([], True), ([{"GlobalFlags": {name: False}}], False)):
        config = InitConfig.model_validate({**sections, "callbacks": callbacks})
        with global_flags(config):
            assert FLAGS.debug.implicit_cast_cb16_to_fp32 is expected
        assert FLAGS.debug.implicit_cast_cb16_to_fp32 is False
    assert name in config.backend.dump()
    assert name not in init().backend.dump()


def test_every_flag_of_the_configuration_exists_in_python() -> None:
    for field in Flags.model_fields.values():
        holder: Any = cstorch.backends
        for name in str(field.alias).split("."):
            assert name in dir(holder) or name in type(holder).model_fields
            holder = getattr(holder, name)


def test_flag_of_a_run_acts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A CS-2 is excluded, and nothing else is in the cluster."""
    callbacks = [{"GlobalFlags": {"csx.debug.fabric_type_blacklist": ["cs2"]}}]
    code, _, err = run_here(write_run(tmp_path, init__callbacks=callbacks), capsys)
    assert code == 1
    assert "csx.debug.fabric_type_blacklist" in err
    assert FLAGS.debug.fabric_type_blacklist == ()


def test_precision_of_a_run_ends_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next run in the same process does not inherit it."""
    before = FLAGS.precision.optimization_level, cstorch.amp.get_half_dtype_str()
    precision = {"fp16_type": "float16", "precision_opt_level": 2}
    code, _, err = run_here(write_run(tmp_path, init__precision=precision), capsys)
    assert code == 0, err
    assert (FLAGS.precision.optimization_level, cstorch.amp.get_half_dtype_str()) == before
