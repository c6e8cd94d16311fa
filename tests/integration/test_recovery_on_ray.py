"""Roles of a running cluster are killed; the run goes on to the weights and losses without a fault."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.recovery.policy import TAINTING_FAILURES
from cstorch import Backend
from swarmx.links.link import LinkKind
from tests.support.runs.tiny_training import Shape, init_config, train_on_cluster
from waferstream.core.program.program import ProgramKind

LOCAL = Shape(num_csx=3, fan_out=2, servers=2)
FIRST_STEPS, LAST_STEP = 2, 20
KILLS = (
    "csx-1@5/weights:kill",
    "br-0@8/weights:kill",
    "wrk-0@11:kill",
    f"csx-2@14/weights:kill*{TAINTING_FAILURES}",
)
"""A system, the root switch, the input worker, and a system that keeps failing."""


def train_on(backend: Backend) -> dict[str, Any]:
    results = backend.session.run(ProgramKind.TRAIN, FIRST_STEPS + 1, LAST_STEP)
    return {
        "digest": backend.weights_digest(),
        "results": [(r.step, r.values, r.gradient_norm, r.timing) for r in results],
    }


@pytest.mark.ray
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "link",
    [
        "shared_memory",
        pytest.param("tcp", marks=pytest.mark.nightly),
        pytest.param("grpc", marks=pytest.mark.nightly),
    ],
)
def test_killed_roles_are_replaced_in_the_running_cluster(
    tmp_path: Path, link: LinkKind, caplog: pytest.LogCaptureFixture
) -> None:
    """The log tells the story: only steps in progress run again, and in the end with fewer."""
    expected = train_on_cluster(init_config(), LOCAL, FIRST_STEPS, inspect=train_on)
    restarts = TAINTING_FAILURES + 1
    on_ray = replace(LOCAL, kind="ray", link=link, restarts=restarts, faults=KILLS, folder=tmp_path)
    with caplog.at_level("WARNING", "waferstream"):
        found = train_on_cluster(init_config(), on_ray, FIRST_STEPS, inspect=train_on)
    assert found == expected
    told = [record.message for record in caplog.records if "Recovery" in record.message]
    decisions = [line.split()[1:4] for line in told[::2]]
    replaced = [
        [role, "died:", "replace,"] for role in ("csx-1", "br-0", "wrk-0", "csx-2", "csx-2")
    ]
    assert decisions == [*replaced, ["csx-2", "died:", "shrink,"]]
    steps = [re.search(r"recovered in .* s .*; step (\d+) runs again", line) for line in told[1::2]]
    again = [int(step[1]) for step in steps if step]
    # A system may still wait for the results of the step before when the next one begins.
    behind = [due - step for due, step in zip((5, 8, 11, 14, 14, 14), again, strict=True)]
    assert set(behind) <= {0, 1}


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("link", ["shared_memory", "tcp", "grpc"])
def test_lost_and_doubled_messages_are_found_at_once(
    tmp_path: Path, link: LinkKind, caplog: pytest.LogCaptureFixture
) -> None:
    """Long before the stall limit, which is ten minutes; a doubled message needs no recovery."""
    expected = train_on_cluster(init_config(), LOCAL, FIRST_STEPS, inspect=train_on)
    lost = ("csx-1@5/gradients:drop", "br-0@8/weights:drop", "wrk-0@11:drop", "wgt-1@14:drop")
    faults = (*lost, "csx-0@17/weights:duplicate")
    on_ray = replace(LOCAL, kind="ray", link=link, restarts=1, faults=faults, folder=tmp_path)
    with caplog.at_level("WARNING", "waferstream"):
        found = train_on_cluster(init_config(), on_ray, FIRST_STEPS, inspect=train_on)
    assert found == expected
    told = [record.message for record in caplog.records if "Recovery" in record.message]
    assert len(told) == 2 * len(lost)
    assert all(" was lost: retry, no role is lost" in line for line in told[::2])


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("has_replicas", [False, True], ids=["replay", "replica"])
def test_killed_weight_server_in_flash_is_replaced(tmp_path: Path, has_replicas: bool) -> None:
    """Its files end with its process; nothing of them is left."""
    expected = train_on_cluster(init_config(), LOCAL, FIRST_STEPS, inspect=train_on)
    (flash := tmp_path / "flash").mkdir()
    on_ray = replace(
        LOCAL,
        kind="ray",
        restarts=2,
        faults=("wgt-1@6:kill",),
        folder=tmp_path,
        flash=(flash, 64_000),
        has_replicas=has_replicas,
    )
    assert train_on_cluster(init_config(), on_ray, FIRST_STEPS, inspect=train_on) == expected
    assert not list(flash.iterdir())


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_system_with_wrong_bits_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two others compute what it has computed, in processes of their own."""
    expected = train_on_cluster(init_config(), LOCAL, FIRST_STEPS, inspect=train_on)
    faults = ("csx-1@6:wrong_bits",)
    verified = replace(LOCAL, kind="ray", restarts=1, faults=faults, folder=tmp_path, verified=1.0)
    with caplog.at_level("WARNING", "waferstream"):
        found = train_on_cluster(init_config(), verified, FIRST_STEPS, inspect=train_on)
    assert found == expected
    told = [record.message for record in caplog.records if "Recovery" in record.message]
    assert any("csx-1 computes wrong bits and is tainted" in line for line in told)
