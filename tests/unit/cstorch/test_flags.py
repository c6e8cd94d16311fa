"""Flags of the backend: attributes that check assignments."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

import pytest
import torch

import cstorch
from cstorch import backends
from tests.support.errors import raises
from tests.support.programs.cstorch_program import evaluation_step, executor, losses, training_step
from waferstream.core.errors import ConfigError
from waferstream.core.program.micro_batches import Explore, SizeRange


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    yield
    backends.reset()


@pytest.mark.parametrize("size", ["auto", None, 1, 64])
def test_micro_batch_size_takes_policies_and_numbers(size: Any) -> None:
    """A policy, a number, or None for the whole share."""
    backends.csx.performance.micro_batch_size = size
    assert backends.csx.performance.micro_batch_size == size


@pytest.mark.parametrize("size", ["explore", {"explore": {}}, {"explore": {"min": 2, "max": 8}}])
def test_explore_is_a_word_or_a_range(size: Any) -> None:
    """The word alone compares all sizes."""
    backends.csx.performance.micro_batch_size = size
    expected = {"min": 2, "max": 8} if "max" in str(size) else {}
    found: Any = backends.csx.performance.micro_batch_size
    assert found == Explore(explore=SizeRange(**expected))


@pytest.mark.parametrize("size", [0, -4, "most", 2.5, {"explore": {"min": 0}}])
def test_micro_batch_size_refuses_other_values(size: Any) -> None:
    """The assignment is refused, not the later use."""
    with raises(ConfigError, "flag-value-invalid"):
        backends.csx.performance.micro_batch_size = size


@pytest.mark.parametrize("level", [3, -1, "high"])
def test_optimization_level_refuses_other_values(level: Any) -> None:
    """The vendor's levels are 0, 1 and 2."""
    with raises(ConfigError, "flag-value-invalid"):
        backends.csx.precision.optimization_level = level


def test_misspelt_flag_is_refused() -> None:
    """An unknown flag is an error that names it, whether it is written or read."""
    flags: Any = backends.csx.performance
    with raises(ConfigError, "unknown-flag") as caught:
        flags.mirco_batch_size = 4
    assert (caught.value.value, "micro_batch_size" in str(caught.value.remedy)) == (
        "mirco_batch_size",
        True,
    )
    assert not hasattr(flags, "mirco_batch_size")
    assert getattr(flags, "mirco_batch_size", None) is None


DEFAULTS = {
    "performance.transfer_processes": 5,
    "performance.max_transfer_bytes": 256 * 2**20,
    "performance.compress_weights": False,
    "performance.use_speculative_optimizers": True,
    "cluster.auto_taint": False,
    "storage.s3.profile": None,
    "debug.lazy_initialization": True,
    "debug.optimize_initialization": True,
    "debug.skip_weight_init": False,
    "debug.log_initialization": True,
    "debug.drop_data": False,
    "debug.retrace_every_iteration": False,
    "debug.implicit_cast_cb16_to_fp32": False,
    "debug.save_gpv": False,
    "debug.compile_crd_memory_gi": None,
}
"""Defaults of section 2.3 of the published interface."""


@pytest.mark.parametrize("flag", DEFAULTS)
def test_every_published_flag_exists_with_its_default(flag: str) -> None:
    """It may be set to its default, as a program does that restores it."""
    *groups, name = flag.split(".")
    place = reduce(getattr, groups, backends.csx)
    assert getattr(place, name) == DEFAULTS[flag]
    setattr(place, name, DEFAULTS[flag])


@pytest.mark.parametrize("flag", ["drop_data", "skip_weight_init"])
def test_flags_that_change_results_are_refused(flag: str) -> None:
    """Nothing here would compute what they ask for."""
    with raises(ConfigError, "flag-value-invalid"):
        setattr(backends.csx.debug, flag, True)


def test_server_settings_take_any_name() -> None:
    """INI values are attributes, DebugArgs a tree; both may be assigned as mappings."""
    debug: Any = backends.csx.debug
    debug.ini.ws_something = True
    assert vars(debug.ini) == {"ws_something": True}
    del debug.ini.ws_something
    debug.ini = {"other": 1}
    assert debug.ini.other == 1
    debug.debug_args = {"debug_usr.level": 2}
    assert debug.debug_args.debug_usr.level == 2


def test_excluded_kind_of_system_is_refused(backend: cstorch.Backend) -> None:
    """A job on the cluster's only kind of system cannot start."""
    debug: Any = backends.csx.debug
    debug.fabric_type_blacklist = "cs3"
    assert len(losses(evaluation_step(backend), executor(1))) == 1
    debug.fabric_type_blacklist = ["cs2"]
    with raises(ConfigError, "fabric-type-excluded"):
        losses(training_step(backend), executor(1))


def test_models_are_initialized_at_once_without_laziness(backend: cstorch.Backend) -> None:
    """The values are those of a lazy model."""
    backends.csx.debug.lazy_initialization = False
    torch.manual_seed(0)
    with backend.device:
        layer = torch.nn.Linear(2, 2)
        assert layer.weight.untyped_storage().nbytes() > 0
    torch.manual_seed(0)
    assert torch.equal(layer.weight, torch.nn.Linear(2, 2).weight)


def test_reset_restores_the_defaults() -> None:
    """The next program of the process starts with default flags."""
    csx: Any = backends.csx
    csx.performance.micro_batch_size = 4
    csx.precision.optimization_level = 0
    backends.reset()
    assert csx.performance.micro_batch_size == "auto"
    assert csx.precision.optimization_level == 1


def test_restored_gives_flags_their_former_values() -> None:
    """A reset inside the block, and settings inside a group, end with the block too."""
    csx: Any = backends.csx
    csx.precision.optimization_level = 2
    csx.debug.ini.a = 1
    backends.amp.half_dtype = "float16"
    with backends.restored():
        assert csx.precision.optimization_level == 2
        csx.debug.ini.a = 2
        backends.reset()
        assert csx.precision.optimization_level == 1
        csx.precision.optimization_level = 0
    assert csx.precision.optimization_level == 2
    assert csx.debug.ini.a == 1
    assert backends.amp.half_dtype == "float16"
