"""No role may need more memory than its limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.elaboration.elaborate import ClusterSize
from appliance.elaboration.role_limits import check_roles
from tests.support.errors import raises
from tests.support.roles.local_machine import (
    Regression,
    compiled_regression,
    installation,
    sgd,
)
from tests.support.runs.tiny_run import run_here, write_run
from tests.support.runs.tiny_training import Shape, init_config, train_on_cluster
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.messages.payload import payload_bytes
from waferstream.core.roles.installation import Installation
from waferstream.core.units import GIB
from waferstream.machine.hardware import MachineSpec
from waferstream.training.setup.backend import global_flags

SIZE = ClusterSize(1, num_servers=2)


def installed() -> Installation:
    """Return the installation of a step of three micro-batches on one system."""
    return installation(compiled_regression(6, 3), list, sgd(Regression()), SIZE, MachineSpec())


def needs() -> dict[str, int]:
    """Return what two roles need by the sizes of the model and its batch: half of all weights.

    A worker has the batch, and what the one system takes in two rounds.
    """
    program = installed().program
    waiting = 2 * installed().rounds.per_node
    return {
        "wgt_memory_gi": 4 * sum(weight.numel() for weight in Regression().parameters()) // 2,
        "wrk_memory_gi": (3 + waiting) * payload_bytes(program.inputs),
    }


@pytest.mark.parametrize("flag", ["wgt_memory_gi", "wrk_memory_gi"])
def test_role_that_needs_more_than_its_limit_is_refused(flag: str) -> None:
    need_bytes = needs()[flag]
    check_roles(installed(), SIZE, {flag: need_bytes})
    with raises(ApplianceResourceExhausted, "role-exceeds-memory-limit") as caught:
        check_roles(installed(), SIZE, {flag: need_bytes - 1})
    assert flag in str(caught.value.where)


@pytest.mark.parametrize("flag", ["compile_crd_memory_gi", "execute_crd_memory_gi"])
def test_process_of_the_coordinator_has_limits(flag: str) -> None:
    check_roles(installed(), SIZE, {flag: 1 << 50})
    with raises(ApplianceResourceExhausted, "role-exceeds-memory-limit"):
        check_roles(installed(), SIZE, {flag: 1 << 20})


@pytest.mark.parametrize("flag", ["cmd_memory_gi", "chf_memory_gi"])
def test_roles_that_do_not_exist_need_nothing(flag: str) -> None:
    check_roles(installed(), SIZE, {flag: 1})


def test_run_is_refused_by_a_flag_of_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [{"GlobalFlags": {"csx.debug.wgt_memory_gi": 1 / GIB}}]
    run = write_run(tmp_path, init__loop={"max_steps": 1}, init__callbacks=flags)
    code, out, err = run_here([*run, "--mode=train"], capsys)
    assert code == 1
    assert "[role-exceeds-memory-limit]" in err
    assert "Preparing to execute" not in out


def test_activation_server_has_a_limit() -> None:
    """Where the host of a system has no room for its micro-batch."""
    shape = Shape(1, activation_servers=1, activation_memory=70_000)
    init = init_config(callbacks=[{"GlobalFlags": {"csx.debug.act_memory_gi": 1 / GIB}}])
    with global_flags(init), raises(ApplianceResourceExhausted, "role-exceeds-memory-limit"):
        train_on_cluster(init, shape)
