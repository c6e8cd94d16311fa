"""Assert on the stable code of an error, not on its prose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from waferstream.core.errors import WaferStreamError

Error = TypeVar("Error", bound=WaferStreamError)


@contextmanager
def raises(kind: type[Error], code: str) -> Iterator[pytest.ExceptionInfo[Error]]:
    """Expect an error of ``kind`` with ``code``; yields what pytest caught."""
    with pytest.raises(kind) as caught:
        yield caught
    assert caught.value.code == code
