"""The small sections: backend, loop, checkpoint, logging, dataloaders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from waferstream.config.params import FitConfig, ValidateAllConfig
from waferstream.config.sections.backend import BackendConfig, ClusterConfig
from waferstream.config.sections.init import (
    ROLES,
    CheckpointConfig,
    DataLoaderConfig,
    LoggingConfig,
    LoopConfig,
)
from waferstream.config.sections.section import Section
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError

DATA = {"data_processor": "Dummy", "batch_size": 4}


@pytest.mark.parametrize(
    ("frequency", "read"), [(100, 100), (0.25, 0.25), (1.0, 1.0), (0, 0), (0.0, 0), (None, 0)]
)
def test_eval_frequency_is_steps_or_a_fraction(frequency: Any, read: float) -> None:
    """Whole numbers are steps, floats a fraction of the run; null, like 0, means never."""
    found = validate(LoopConfig, {"eval_frequency": frequency}, "loop").eval_frequency
    assert found == read
    assert type(found) is type(read)


def test_one_step_is_not_the_whole_run() -> None:
    """eval_frequency 1 and 1.0 stay different when written and read again."""
    for value in (1, 1.0):
        written = LoopConfig(eval_frequency=value).dump()["eval_frequency"]
        assert type(written) is type(value)


def test_labels_are_a_list_or_a_mapping() -> None:
    """['a=1'] and {a: 1} say the same; of a label given twice the first counts."""
    listed = validate(ClusterConfig, {"job_labels": ["a=1", "b=x=y", "a=2"]}, "cluster")
    assert listed.job_labels == {"a": "1", "b": "x=y"}
    assert validate(ClusterConfig, listed.dump(), "cluster") == listed


def test_a_single_path_needs_no_list() -> None:
    """mount_dirs: /a means [/a], null means none."""
    one = validate(ClusterConfig, {"mount_dirs": "/a", "python_paths": None}, "cluster")
    assert (one.mount_dirs, one.python_paths) == ((Path("/a"),), ())


def test_one_level_for_all_is_a_level_for_each_role() -> None:
    """Levels are read in any case, as names or numbers, for all roles or for one."""
    every = validate(LoggingConfig, {"wsc_log_level": "debug"}, "logging").wsc_log_level
    assert every == dict.fromkeys(ROLES, "DEBUG")
    single = validate(LoggingConfig, {"wsc_log_level": {"wgt.x.execute": "15"}}, "logging")
    assert single.wsc_log_level == {"wgt.x.execute": 15}


def test_a_checkpoint_to_start_from() -> None:
    """Absent: the newest one; null: none; otherwise the file."""
    assert validate(FitConfig, {"train_dataloader": DATA}, "fit").ckpt_path == "newest"
    for path, read in ((None, None), ("a/b.mdl", Path("a/b.mdl")), ("newest", "newest")):
        fit = validate(FitConfig, {"train_dataloader": DATA, "ckpt_path": path}, "fit")
        assert fit.ckpt_path == read
        assert validate(FitConfig, fit.dump(), "fit") == fit
    every = validate(ValidateAllConfig, {"ckpt_paths": "*.mdl", "val_dataloaders": DATA}, "all")
    assert every.ckpt_paths == (Path("*.mdl"),)
    assert len(every.val_dataloaders) == 1


def test_a_dataloader_keeps_the_keys_of_its_processor() -> None:
    """Free keys, null among them, are handed on as they are."""
    data = {**DATA, "data_dir": ["a", "b"], "limit": None, "mixture": [{"weight": 0.5}]}
    assert validate(DataLoaderConfig, data, "data").dump() == data


@pytest.mark.parametrize(
    ("kind", "section", "complaint"),
    [
        (BackendConfig, {"compile_only": True, "validate_only": True}, "mutually exclusive"),
        (BackendConfig, {"backend_type": "CXS"}, "did you mean 'CSX'?"),
        (ClusterConfig, {"num_csx": 0}, "num_csx"),
        (ClusterConfig, {"num_csx": True}, "not true or false"),
        (ClusterConfig, {"num_cxs": 1}, "did you mean 'num_csx'?"),
        (ClusterConfig, {"job_priority": "p0"}, "'p1', 'p2' or 'p3'"),
        (ClusterConfig, {"job_labels": ["a"]}, "key=value"),
        (ClusterConfig, {"notifications": [{"mailto": "x"}]}, "mailto"),
        (LoopConfig, {"num_steps": 1, "num_epochs": 1}, "mutually exclusive"),
        (LoopConfig, {"steps_per_epoch": 1}, "requires num_epochs"),
        (LoopConfig, {"max_steps": 2**31}, "max_steps"),
        (LoopConfig, {"eval_frequency": 1.5}, "eval_frequency"),
        (LoopConfig, {"eval_frequency": -1}, "eval_frequency"),
        (CheckpointConfig, {"checkpoint_name": "last.mdl"}, "{step}"),
        (CheckpointConfig, {"checkpoint_name": "{step}_{loss}.mdl"}, "{step}"),
        (CheckpointConfig, {"checkpoint_name": "../{step}.mdl"}, "{step}"),
        (CheckpointConfig, {"checkpoint_name": "{step"}, "{step}"),
        (CheckpointConfig, {"checkpoint_root": "s3://bucket"}, "not supported here"),
        (FitConfig, {"train_dataloader": DATA, "ckpt_path": "s3://a"}, "local file"),
        (LoggingConfig, {"wsc_log_level": {"wtg": "INFO"}}, "did you mean 'wgt'?"),
        (LoggingConfig, {"log_level": "LOUD"}, "'INFO'"),
        (LoggingConfig, {"log_steps": 0}, "log_steps"),
        (DataLoaderConfig, {"data_processor": "Dummy"}, "'batch_size' is missing"),
        (DataLoaderConfig, {**DATA, "batch_size": 0}, "batch_size"),
        (DataLoaderConfig, {**DATA, "micro_batch_size": 2}, "ScopedTrainFlags"),
    ],
)
def test_a_wrong_value_is_explained(
    kind: type[Section], section: dict[str, Any], complaint: str
) -> None:
    """Every mistake is refused with the rule it breaks, or what to write instead."""
    with pytest.raises(ConfigError) as caught:
        validate(kind, section, "section")
    assert complaint in str(caught.value)
