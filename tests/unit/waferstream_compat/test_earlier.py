"""Functions of the vendor's earlier releases."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import cstorch
from tests.support.errors import raises
from tests.support.programs.cstorch_program import (
    executor,
    losses,
    run,
    running_backend,
    training_step,
)
from tests.support.roles.local_machine import Regression
from waferstream.core.errors import ConfigError, ProgramOrderError
from waferstream_compat.earlier import (
    CSConfig,
    configure_lr_scheduler,
    configure_optimizer,
    save_summaries,
    summarize_scalar,
    use_bfloat16,
)


@pytest.fixture
def backend() -> Iterator[cstorch.Backend]:
    with running_backend() as running:
        yield running


class Writer:
    """A writer that keeps what it is given."""

    def __init__(self) -> None:
        self.written: list[tuple[str, int]] = []

    def add_scalar(self, name: str, value: torch.Tensor, step: int) -> None:
        assert value.ndim == 0
        self.written.append((name, step))


def test_none_stands_for_defaults_and_the_level_is_a_flag() -> None:
    config = CSConfig(num_csx=None, mount_dirs=None, precision_opt_level=0)  # type: ignore[arg-type]
    try:
        assert config.for_cluster().num_csx == 1
        assert cstorch.backends.csx.precision.optimization_level == 0
    finally:
        cstorch.backends.reset()


@pytest.mark.parametrize(("enabled", "name"), [(True, "bfloat16"), (False, "float16")])
def test_bfloat16_is_a_half_type(enabled: bool, name: str, backend: cstorch.Backend) -> None:
    use_bfloat16(enabled)
    assert cstorch.amp.get_half_dtype_str() == name


def test_optimizer_is_found_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    parameters = list(nn.Linear(2, 2).parameters())
    with caplog.at_level(logging.WARNING, "waferstream"):
        made = configure_optimizer("adamw", parameters, learning_rate=0.5, log_summaries=True)
    assert isinstance(made, cstorch.optim.AdamW)
    assert made.param_groups[0]["lr"] == 0.5
    assert "log_summaries" in caplog.text
    with raises(ConfigError, "unknown-class-name") as caught:
        configure_optimizer("adamx", parameters)
    assert caught.value.remedy


def test_schedules_follow_each_other() -> None:
    optimizer = cstorch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    linear = {"initial_learning_rate": 0.0, "end_learning_rate": 1.0, "steps": 4}
    section: list[Any] = [{"scheduler": "Linear", **linear}, {"scheduler": "Constant"}]
    section[1]["learning_rate"] = 0.5
    assert isinstance(
        configure_lr_scheduler(optimizer, section), cstorch.optim.lr_scheduler.SequentialLR
    )
    assert configure_lr_scheduler(optimizer, 0.3).get_last_lr() == [0.3]
    assert configure_lr_scheduler(optimizer, None) is None


def test_summaries_without_a_writer_wait_for_one(backend: cstorch.Backend) -> None:
    step, writer = training_step(backend), Writer()

    @cstorch.step_closure
    def save() -> None:
        save_summaries(writer, backend.global_step)  # type: ignore[arg-type]

    def body(batch: Any) -> None:
        summarize_scalar("loss", step(batch))
        save()

    run(executor(2), body)
    assert writer.written == [("loss", 1), ("loss", 2)]


def test_settings_of_a_running_cluster_stay(backend: cstorch.Backend) -> None:
    losses(training_step(backend), executor(1))
    with raises(ProgramOrderError, "cluster-runs-with-other-settings"):
        executor(1, cs_config=CSConfig(num_csx=1))


def test_listeners_of_an_executor_are_refused(backend: cstorch.Backend) -> None:
    assert len(executor(1, listeners=[])) == 1
    with raises(ConfigError, "listeners-of-executor"):
        executor(1, listeners=[print])


def test_kind_of_a_backend_stands_for_it(backend: cstorch.Backend) -> None:
    cstorch.compile(Regression(), "CSX")
    assert backend.model is not None
    with raises(ProgramOrderError, "second-backend"):
        cstorch.compile(Regression(), "CPU")


def test_option_of_a_backend_is_a_flag_now() -> None:
    with running_backend(retrace_every_iteration=True):
        assert cstorch.backends.csx.debug.retrace_every_iteration


@pytest.mark.parametrize("option", ["max_checkpoints", "use_cs_grad_accum", "drop_data"])
def test_dropped_option_of_a_backend_has_a_remedy(option: str) -> None:
    options: Any = {option: True}
    with raises(ConfigError, "unknown-backend-option") as caught:
        cstorch.backend("CSX", **options)
    assert caught.value.remedy != "leave it out"
