"""Section precision: the types that follow from it, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from waferstream.config.sections.precision import PrecisionConfig
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError


@pytest.mark.parametrize(
    ("section", "stream", "compute"),
    [
        ({}, "bfloat16", "bfloat16"),
        ({"enabled": False}, "float32", "float32"),
        ({"enabled": False, "precision_opt_level": 2}, "float32", "float32"),
        ({"precision_opt_level": 0}, "bfloat16", "float32"),
        ({"fp16_type": "float16", "precision_opt_level": 0}, "float16", "float32"),
        ({"fp16_type": "float16", "precision_opt_level": 2}, "float16", "float16"),
    ],
)
def test_precision_says_how_weights_travel_and_kernels_compute(
    section: dict[str, Any], stream: str, compute: str
) -> None:
    """The table in PrecisionConfig holds."""
    precision = validate(PrecisionConfig, section, "precision")
    assert (precision.stream_dtype, precision.compute_dtype) == (stream, compute)


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        ({"fp16_type": "cbfloat16"}, "loss_scaling_factor: dynamic"),
        ({"loss_scaling_factor": "static"}, "loss_scaling_factor"),
        ({"steps_per_increase": 0}, "greater than 0"),
        ({"precision_opt_level": 3}, "0, 1 or 2"),
        ({"max_gradient_norm": 0}, "greater than 0"),
        ({"enabled": False, "stochastic_rounding": True}, "needs a half type"),
    ],
)
def test_mistake_is_refused(section: dict[str, Any], complaint: str) -> None:
    """With the rule it breaks."""
    with pytest.raises(ConfigError) as caught:
        validate(PrecisionConfig, section, "precision")
    assert complaint in str(caught.value)
