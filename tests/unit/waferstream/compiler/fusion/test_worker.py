"""What compilers have made is tried before it is kept."""

from __future__ import annotations

import pytest

from waferstream.compiler.fusion.cache import Entry
from waferstream.compiler.fusion.worker import tried
from waferstream.core.program import fused as module
from waferstream.core.program.fused import FusedKernel
from waferstream.core.program.kernel_source import KernelSource

OPERAND = ("float32", (2, 3), (3, 1))
KERNEL = KernelSource("def forward(self, x):\n    return (x,)", {}, {})


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return (x,)", ""),
        ("return (x.t(),)", "its results have other shapes or strides"),
        ("assert x is None", "it failed when tried: AssertionError()"),
        ("return (missing(x),)", "it failed when tried: NameError"),
    ],
)
def test_kernel_that_fails_stays_as_it_is(
    body: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_loaded", lambda _: None)  # it has no loops
    fused = FusedKernel(f"def forward(self, x):\n    {body}", (), b"", "processor")
    found = tried(Entry((OPERAND,), fused), KERNEL, (OPERAND,))
    assert found.reason.startswith(reason)
    assert (found.fused is None) == bool(reason)
