"""Helpers for files, sizes and classes."""

from __future__ import annotations

from pathlib import Path

from waferstream_compat.utils.files import (
    bytes_to_human,
    convert_byte_unit,
    create_symlink,
    retrieve_all_subclasses,
)


def test_a_link_replaces_a_link(tmp_path: Path) -> None:
    for target in ("a", "b"):
        (tmp_path / target).mkdir()
        create_symlink(tmp_path / "latest", target, target_is_directory=True)
    assert (tmp_path / "latest").resolve() == tmp_path / "b"


def test_sizes_have_units() -> None:
    assert bytes_to_human(512) == "512.0B"
    assert bytes_to_human(1536) == "1.5KiB"
    assert convert_byte_unit(2, "MB", src_unit="GB") == 2048


def test_subclasses_are_found_at_every_depth() -> None:
    class A: ...

    class B(A): ...

    class C(B): ...

    assert list(retrieve_all_subclasses(A)) == [B, C]
