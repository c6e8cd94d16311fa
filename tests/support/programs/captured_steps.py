"""Training steps of small models as they are captured, before any pass."""

from __future__ import annotations

from typing import Any

from tests.support.programs.plain_steps import backward_step
from tests.support.roles.local_machine import FP32
from tests.support.runs.tiny_training import GPT, LOADER
from waferstream.compiler.capture.capture import capture
from waferstream.compiler.capture.captured import Captured
from waferstream.numerics.precision import StreamPrecision
from waferstream.workload.data import build_source
from waferstream.workload.models import build_model


def captured(config: dict[str, Any] = GPT, precision: StreamPrecision = FP32) -> Captured:
    """Return the step of a model of one layer on two samples."""
    model = build_model(config | {"num_hidden_layers": 1}, 0)
    batch = build_source(LOADER, "test").batch(0)
    inputs = [(name, tensor[:2]) for name, tensor in batch.items()]
    return capture(backward_step(model), model, inputs, precision)
