"""Faults as users write them, and faults that are drawn."""

import pytest

from appliance.faults.plan import Fault, FaultPlan
from tests.support.errors import raises
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError

ROLES = ("wgt-0", "br-0", "csx-0", "wrk-0", "crd-0")


@pytest.mark.parametrize(
    "text",
    ["csx-1@51:kill", "br-0@20/gradients:drop", "wrk-0@3:slow=0.5*4", "wgt-0@1:clock=3600"],
)
def test_fault_is_written_as_it_is_read(text: str) -> None:
    """Text to fault to text."""
    assert str(Fault.model_validate(text)) == text


def test_seconds_have_a_default_by_kind() -> None:
    """A clock jumps by an hour, a slow message takes a fifth of a second longer."""
    assert Fault.model_validate("csx-1@5:clock").seconds == 3600
    assert Fault.model_validate("csx-1@5:slow").seconds == 0.2
    assert Fault.model_validate("csx-1@5:kill").seconds == 0


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("csx-1:kill", "not-allowed"),
        ("csx-1@0:kill", "out-of-range"),
        ("csx-1@5:melt", "not-one-of"),
        ("csx-1@5/lunch:kill", "not-one-of"),
        ("csx-1@5:slow=-1", "out-of-range"),
    ],
)
def test_malformed_fault_is_refused(text: str, code: str) -> None:
    """Each part has its rule."""
    with raises(ConfigError, code):
        validate(FaultPlan, {"stated": [text]}, "--fault")


def test_fault_of_an_unknown_role_is_refused() -> None:
    """A cluster of one system has no csx-1."""
    plan = validate(FaultPlan, {"stated": ["csx-1@5:kill"]}, "--fault")
    with raises(ConfigError, "not-one-of"):
        plan.faults(ROLES)


def test_equal_seeds_draw_equal_faults() -> None:
    """The draw depends on seed and roles alone, and covers kinds and roles evenly."""
    drawn = [
        validate(FaultPlan, {"random": {"count": 60, "seed": s, "last_step": 9}}, "").faults(ROLES)
        for s in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    steps = [fault.step for fault in drawn[0]]
    assert steps == sorted(steps)
    assert set(steps) <= set(range(1, 10))
    assert len({(fault.role, fault.kind) for fault in drawn[0]}) == 59  # all that can be, and one
    assert {fault.role for fault in drawn[0] if fault.kind == "disk"} == {"wgt-0"}
