"""Every error has a status in HTTP and gRPC."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from scripts.error_pages import error_codes
from waferstream.core import errors
from waferstream.core.error_status import OF_CLASS, OF_CODE, status_of


def classes_of(kind: type[errors.WaferStreamError]) -> Iterator[type[errors.WaferStreamError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from classes_of(each)


def test_every_class_has_a_row() -> None:
    """A class without a row differs from its base in a field, or in a base of Python's."""
    here = {
        each for each in classes_of(errors.WaferStreamError) if each.__module__ == errors.__name__
    }
    without = {each.__name__ for each in here - OF_CLASS.keys()}
    assert without == {"_ClientError", "EmptyLoaderError", "NotFiniteStepError"}


def test_every_status_is_one_of_grpc() -> None:
    names = {*OF_CLASS.values(), *OF_CODE.values()}
    assert names <= {each.name for each in grpc.StatusCode}
    assert all(400 <= status_of(kind, "").http < 600 for kind in OF_CLASS)


def test_every_code_with_a_row_exists() -> None:
    assert OF_CODE.keys() <= error_codes().keys()


@pytest.mark.parametrize(
    ("kind", "code", "expected"),
    [
        (errors.ConfigError, "unknown-key", (400, "INVALID_ARGUMENT")),
        (errors.ConfigError, "unknown-job", (404, "NOT_FOUND")),
        (errors.ProgramOrderError, "no-loop", (409, "FAILED_PRECONDITION")),
        (errors.NotFiniteStepError, "loss-not-finite", (400, "OUT_OF_RANGE")),
        (errors.ApplianceDeadlockError, "role-stalled", (504, "DEADLINE_EXCEEDED")),
    ],
)
def test_code_decides_before_class_and_class_before_base(
    kind: type[errors.WaferStreamError], code: str, expected: tuple[int, str]
) -> None:
    assert status_of(kind, code) == expected
