"""Callbacks and loggers: which run, how a default is taken away, what flags say."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.runs.params_sections import init_section
from waferstream.config.params import InitConfig
from waferstream.config.sections.callbacks import (
    CheckLoss,
    ComputeNorm,
    DumpAvailableTensorNames,
    KeepNCheckpoints,
    LoadCheckpointStates,
    ProgressLogger,
    TensorBoardLogger,
)
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError
from waferstream.core.program.micro_batches import Explore, SizeRange

MICRO = "csx.performance.micro_batch_size"


def test_defaults_run_unless_they_are_taken_away() -> None:
    """Two callbacks and both loggers by default; {Name: null} removes one, and stays removed."""
    assert init_section().callbacks == (CheckLoss(), DumpAvailableTensorNames())
    assert init_section().loggers == (ProgressLogger(), TensorBoardLogger())
    section = init_section(callbacks=[{"CheckLoss": None}], loggers=[{"TensorBoardLogger": None}])
    assert section.callbacks == (DumpAvailableTensorNames(),)
    assert section.loggers == (ProgressLogger(),)
    assert validate(InitConfig, section.dump(), "again") == section


def test_a_default_may_be_named() -> None:
    """A default appears once, with or without arguments."""
    section = init_section(callbacks=[{"CheckLoss": {}}], loggers=[{"TensorBoardLogger": {}}])
    assert section.callbacks == (CheckLoss(), DumpAvailableTensorNames())
    assert len(section.loggers) == 2


def test_taking_away_what_the_vendor_adds_changes_nothing() -> None:
    """Stock files remove callbacks that exist on the real machine alone."""
    assert (
        init_section(callbacks=[{"FlopUtilization": None}, {"ComputeNorm": None}]) == init_section()
    )


def test_callbacks_are_read_with_their_arguments() -> None:
    """The order of the file is kept, defaults follow."""
    states = "model, optimizer"
    section = init_section(
        callbacks=[
            {"ComputeNorm": {}},
            {"KeepNCheckpoints": {"n": 3}},
            {"LoadCheckpointStates": {"load_checkpoint_states": states}},
        ]
    )
    assert section.callbacks == (
        ComputeNorm(),
        KeepNCheckpoints(n=3),
        LoadCheckpointStates(load_checkpoint_states=("model", "optimizer")),
        CheckLoss(),
        DumpAvailableTensorNames(),
    )
    assert section.callbacks[1].arguments() == {"n": 3}


def test_a_scoped_micro_batch_size_wins_over_a_global_one() -> None:
    """Scoped, else global, else auto; null is the whole share."""
    both = init_section(callbacks=[{"GlobalFlags": {MICRO: 8}}, {"ScopedTrainFlags": {MICRO: 4}}])
    assert both.micro_batch_policy("train").requested == 4
    assert both.micro_batch_policy("validate").requested == 8
    assert init_section().micro_batch_policy("train").name == "auto"
    unset = init_section(callbacks=[{"ScopedTrainFlags": {}}])
    assert unset.micro_batch_policy("train").name == "auto"
    null = init_section(callbacks=[{"GlobalFlags": {MICRO: None}}])
    assert null.micro_batch_policy("train").name == "none"


def test_fill_wafer_is_a_policy() -> None:
    """The word is read and written back."""
    section = init_section(callbacks=[{"ScopedTrainFlags": {MICRO: "fill_wafer"}}])
    assert section.micro_batch_policy("train").name == "fill_wafer"
    assert init_section(callbacks=section.dump()["callbacks"]) == section


def test_explore_is_a_word_or_a_range() -> None:
    """The word alone means all sizes."""

    def read(value: object) -> object:
        section = init_section(callbacks=[{"GlobalFlags": {MICRO: value}}])
        return section.micro_batch_policy("train").requested

    assert read("explore") == read({"explore": {}}) == Explore()
    found = read({"explore": {"min": 2, "max": 8}})
    assert found == Explore(explore=SizeRange(min=2, max=8))


@pytest.mark.parametrize(
    ("callbacks", "complaint"),
    [
        ([{"KeepNCheckpoint": {"n": 1}}], "did you mean 'KeepNCheckpoints'?"),
        ([{"CheckLos": None}], "did you mean 'CheckLoss'?"),
        ([{"KeepNCheckpoints": {"n": 0}}], "callbacks[0].KeepNCheckpoints.n"),
        (
            [{"KeepNCheckpoints": {"n": 1}}, {"KeepNCheckpoints": {"n": 2}}],
            "must not be listed twice",
        ),
        ([{"ScopedTrainFlags": {"csx.performance.microbatch_size": 1}}], f"'{MICRO}'?"),
        ([{"ScopedTrainFlags": {MICRO: 0}}], MICRO),
        ([{"ScopedTrainFlags": {MICRO: {"explore": {"min": 4, "max": 2}}}}], "above max 2"),
        ([{"ScopedTrainFlags": {MICRO: {"explore": {"most": 2}}}}], "most"),
        ([{"GlobalFlags": {"csx.debug.drop_data": True}}], "not supported here"),
        ([{"GlobalFlags": {"csx.precision.optimization_level": 2}}], "precision_opt_level: 2"),
        ([{"GlobalFlags": {"csx.precision.stochastic_rounding": True}}], "init.precision"),
        ([{"GlobalFlags": {"csx.performance.max_transfer_bytes": 2**32}}], "2147483648"),
        (
            [{"LoadCheckpointStates": {"load_checkpoint_states": "modle"}}],
            "did you mean 'model'?",
        ),
        ("CheckLoss", "known classes: CheckLoss"),
        (5, "'callbacks'"),
    ],
)
def test_a_wrong_callback_is_explained(callbacks: Any, complaint: str) -> None:
    """Every mistake names its place, or the words that are known."""
    with pytest.raises(ConfigError) as caught:
        init_section(callbacks=callbacks)
    assert complaint in str(caught.value)
