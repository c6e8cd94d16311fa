"""Small helpers of the vendor's client for files, sizes and classes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")

Class = TypeVar("Class")


def create_symlink(path: Path | str, target: Path | str, target_is_directory: bool = False) -> None:
    """Make ``path`` a link to ``target``, in place of a link that exists."""
    link = Path(path)
    if link.is_symlink():
        link.unlink(missing_ok=True)
    link.symlink_to(target, target_is_directory)


def bytes_to_human(size: float, decimals: int = 1) -> str:
    """Return a size with the largest unit in which it is at least 1."""
    for unit in UNITS[:-1]:
        if abs(size) < 1024:
            return f"{size:.{decimals}f}{unit}"
        size /= 1024
    return f"{size:.{decimals}f}{UNITS[-1]}"


def convert_byte_unit(size: float, target_unit: str, src_unit: str = "B") -> float:
    """Return a size in another unit (``B``, ``KB``, ``MB``, ..., each 1,024 of the one before)."""
    order = "BKMGTP"
    power = order.index(src_unit[0].upper()) - order.index(target_unit[0].upper())
    return float(size * 1024.0**power)


def retrieve_all_subclasses(cls: type[Class]) -> Iterator[type[Class]]:
    """Yield all direct and indirect subclasses."""
    for subclass in cls.__subclasses__():
        yield subclass
        yield from retrieve_all_subclasses(subclass)
