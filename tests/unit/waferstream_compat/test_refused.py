"""Features that would change results and are refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.errors import raises
from waferstream_compat import experimental, op_profiler
from waferstream_compat.refused import FeatureNotHereError


@pytest.mark.parametrize(
    "feature",
    [
        experimental.start_implicit_loop,
        experimental.Compression,
        op_profiler.profile,
    ],
)
def test_a_call_is_refused_with_a_remedy(feature: Any) -> None:
    with raises(FeatureNotHereError, "feature-not-here") as caught:
        feature(0.5)
    assert caught.value.remedy
