"""Findings: their order, and the error that names their place."""

from __future__ import annotations

from tests.support.errors import raises
from waferstream.core.errors import ApplianceNanError
from waferstream.core.messages.watch import Finding, TensorNorms, first_of, global_norms


def test_first_finding_is_that_of_a_plain_loop() -> None:
    """A weight comes before the micro-batches of its step, these before the sum."""
    weight = Finding(2, 0, -1, 9, "head", "head.weight", "wgt-0")
    early = Finding(2, 1, 0, 7, "layers.1", "mul", "csx-1")
    late = Finding(2, 1, 1, 0, "layers.0", "add", "csx-0")
    assert first_of([late, early, weight]) == weight
    assert first_of([late, early]) == early
    assert first_of([late._replace(step=1), weight]) == late._replace(step=1)
    assert first_of([]) is None


def test_error_is_that_of_the_vendor() -> None:
    with raises(ApplianceNanError, "value-not-finite"):
        raise Finding(2, 1, 3, 0, "layers.0", "add", "csx-0").error()


def test_global_norms_combine_those_of_parameters() -> None:
    norms = {"a": TensorNorms(3.0, 6.0), "b": TensorNorms(4.0, 8.0)}
    assert global_norms(norms) == TensorNorms(5.0, 10.0)
