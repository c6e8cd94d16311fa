"""Fused kernels in the compile cache: one file for each text and shapes of operands.

<compile_dir>/fused_<key>.json    the kernel, or why it stays as it is

The key covers all that decides the code: text, operands, torch, compiler and processor. A file has
the seal of this user (waferstream.host.user_state), so one that was changed or that another user
has made is not loaded, and appears whole or not at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from waferstream.compiler.fusion.regions import Normalized
from waferstream.compiler.fusion.shared_object import compiler, processor
from waferstream.core.program.fused import FusedKernel
from waferstream.host.files import replacing
from waferstream.host.user_state import is_sealed, sealed
from waferstream.numerics.precision import NAMES

log = logging.getLogger("waferstream")

FORMAT = 2
"""Version of the files, and of what writes the kernels."""

Operand = tuple[str, tuple[int, ...], tuple[int, ...]] | None
"""The dtype, shape and strides of a tensor; None for a number."""


def operand_of(value: Any) -> Operand:
    """Return what decides code about a value."""
    if not isinstance(value, torch.Tensor):
        return None
    return NAMES.get(value.dtype, str(value.dtype)), tuple(value.shape), value.stride()


@dataclass(frozen=True)
class Entry:
    """What is known of a kernel: its results, and its fused form if there is one.

    ``fused`` is None where the kernel stays as it is, for the ``reason``. The processor time of a
    call was measured for the kernel as it is, and fused.
    """

    results: tuple[Operand, ...]
    fused: FusedKernel | None = None
    reason: str = ""
    eager_s: float = 0.0
    fused_s: float = 0.0


def key_of(kernel: Normalized, operands: tuple[Operand, ...]) -> str:
    """Return the name of a kernel for some operands on this host, constants last."""
    told = [FORMAT, kernel.text, operands, torch.__version__, compiler(), processor()]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:40]


class FusionCache:
    """The fused kernels below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def load(self, key: str) -> Entry | None:
        """Return an entry, None if there is none; a damaged one is logged and counts as none."""
        path = self._path(key)
        try:
            data = json.loads(path.read_bytes())
            content, seal = data["content"], data["seal"]
            if not is_sealed(_canonical(content), seal) or content["key"] != key:
                raise ValueError("changed, or made by another user")
            return _entry(content)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("Fused kernel %s is damaged (%s); compiling it again", path, error)
            return None

    def store(self, key: str, entry: Entry) -> None:
        """Keep an entry, if the disk has room."""
        content = _content(key, entry)
        data = {"content": content, "seal": sealed(_canonical(content))}
        with suppress(OSError):
            self.root.mkdir(parents=True, exist_ok=True)
            with replacing(self._path(key)) as partial:
                partial.write_text(json.dumps(data))

    def _path(self, key: str) -> Path:
        return self.root / f"fused_{key}.json"


def _canonical(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True).encode()


def _content(key: str, entry: Entry) -> dict[str, Any]:
    fused = entry.fused
    return {
        "key": key,
        "results": entry.results,
        "reason": entry.reason,
        "eager_s": entry.eager_s,
        "fused_s": entry.fused_s,
        "fused": fused
        and {
            "text": fused.text,
            "loops": [list(each) for each in fused.loops],
            "shared_object": base64.b64encode(fused.shared_object).decode(),
            "processor": fused.processor,
        },
    }


def _entry(content: dict[str, Any]) -> Entry:
    fused = content["fused"]
    return Entry(
        tuple(
            None if each is None else (str(each[0]), tuple(each[1]), tuple(each[2]))
            for each in content["results"]
        ),
        fused
        and FusedKernel(
            fused["text"],
            tuple((str(name), int(count)) for name, count in fused["loops"]),
            base64.b64decode(fused["shared_object"]),
            fused["processor"],
        ),
        content["reason"],
        content["eager_s"],
        content["fused_s"],
    )
