"""Messages of a management: generated code is current, errors survive, and any bytes are an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from grpc_tools import protoc
from hypothesis import given
from hypothesis import strategies as st

from waferstream.core.errors import (
    ApplianceUnknownError,
    ConfigError,
    RequestRefused,
    WaferStreamError,
)
from waferstream.core.traveling_errors import decode_error, encode_error
from waferstream.management.wire import management_pb2

TEXT = st.none() | st.text(max_size=1000)


def test_generated_wire_code_is_current(tmp_path: Path) -> None:
    folder = Path(management_pb2.__file__).parent
    source = str(folder / "management.proto")
    assert protoc.main(["protoc", f"-I{folder}", f"--python_out={tmp_path}", source]) == 0
    name = "management_pb2.py"
    assert (tmp_path / name).read_text() == (folder / name).read_text()


@pytest.mark.parametrize("kind", [ConfigError, RequestRefused, ApplianceUnknownError])
@given(what=st.text(max_size=1000), where=TEXT, value=TEXT, rule=TEXT, remedy=TEXT)
def test_error_survives_and_fits_a_header(
    kind: type[WaferStreamError],
    what: str,
    where: str | None,
    value: str | None,
    rule: str | None,
    remedy: str | None,
) -> None:
    error = kind(what, code="a-code", where=where, value=value, rule=rule, remedy=remedy)
    encoded = encode_error(error)
    assert len(encoded) < 6000  # of 8 KiB, a third of which base64 adds
    decoded = decode_error(encoded)
    assert (type(decoded), decoded.code) == (kind, "a-code")
    assert decoded.what.rstrip("…") == what[: len(decoded.what.rstrip("…"))]


def test_time_after_which_one_may_ask_again_survives() -> None:
    decoded = decode_error(encode_error(RequestRefused("no", code="a-code").until(2.5)))
    assert isinstance(decoded, RequestRefused)
    assert decoded.retry_after_s == 2.5


@given(encoded=st.binary(max_size=200) | st.sampled_from([b"{}", b"[]", b'{"what": 1}']))
def test_any_bytes_are_an_error(encoded: bytes) -> None:
    assert isinstance(decode_error(encoded), WaferStreamError)


def test_error_of_unknown_class_is_unknown() -> None:
    decoded = decode_error(b'{"kind": "Exit", "what": "a", "code": "b"}')
    assert (type(decoded), decoded.what, decoded.code) == (ApplianceUnknownError, "a", "b")
