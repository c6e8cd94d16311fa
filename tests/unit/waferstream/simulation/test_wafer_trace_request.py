"""What ``--wafer_trace`` takes, and what it refuses."""

from __future__ import annotations

import pytest

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.simulation.wafer_trace_request import WaferTraceRequest, parse_wafer_trace


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("decoder.0", WaferTraceRequest("decoder.0", None, 4, 6)),
        ("decoder.0@2x3", WaferTraceRequest("decoder.0", None, 2, 3)),
        ("head:softmax", WaferTraceRequest("head", "softmax", 4, 6)),
        ("head:layer_norm@16x16", WaferTraceRequest("head", "layer_norm", 16, 16)),
    ],
)
def test_layer_may_have_a_kernel_and_a_region(text: str, request_: WaferTraceRequest) -> None:
    assert parse_wafer_trace(text) == request_


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "wafer-trace-form"),
        ("decoder.0@4", "wafer-trace-form"),
        ("@4x6", "wafer-trace-form"),
        (f"decoder.0@4x{'1' * 5000}", "wafer-trace-form"),
        ("decoder.0:gelu", "wafer-trace-kernel"),
        ("decoder.0@0x4", "wafer-trace-region"),
        ("decoder.0@17x16", "wafer-trace-region"),
    ],
)
def test_wrong_request_is_refused(text: str, code: str) -> None:
    with raises(ConfigError, code):
        parse_wafer_trace(text)
