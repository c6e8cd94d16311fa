"""Predict start-up times: compiling, initial weights, programming, checkpoints.

Rows name a model instead of its size, and no optimizer: checkpoints are assumed to hold the two
moments of AdamW beside the weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from validation.families.prediction import Family
from validation.families.training import machine_of
from validation.rows.row import CannotPredict, Row, letters_of
from validation.rows.units import SECONDS
from waferstream.core.program.micro_batches import MicroBatchPolicy
from waferstream.core.program.program import MASTER_BYTES
from waferstream.core.units import PS_PER_MS, seconds
from waferstream.machine.hardware import HostSpec
from waferstream.machine.start_up import (
    checkpoint_bytes,
    checkpoint_ps,
    compile_ps,
    initial_weights_ps,
    sizes_tried,
)

ADAMW_STATE_BYTES = 8
"""Bytes of optimizer state per parameter in a checkpoint."""


class Published(NamedTuple):
    """Parameters of a published checkpoint, and the tensors that hold them."""

    parameters: float
    tensors: int


_MODELS: Mapping[str, Published] = {
    "gptj": Published(6.05e9, 285),
    "gptj6b": Published(6.05e9, 285),
    "gptneox20b": Published(20.55e9, 532),
    "llama27b": Published(6.74e9, 291),
    "llama213b": Published(13.02e9, 363),
    "llama270b": Published(68.98e9, 723),
    "llama38b": Published(8.03e9, 291),
    "llama318b": Published(8.03e9, 291),
    "llama370b": Published(70.55e9, 723),
    "mistral7b": Published(7.24e9, 291),
    "falcon7b": Published(7.22e9, 196),
    "esm235m": Published(33.5e6, 200),
    "esm2650m": Published(651e6, 536),
    "esm23b": Published(2.84e9, 584),
    "bertbase": Published(110e6, 206),
    "bertlarge": Published(336e6, 398),
    "gpt2small": Published(124e6, 148),
    "gpt2medium": Published(355e6, 292),
    "gpt2large": Published(774e6, 436),
    "gpt2xl": Published(1.558e9, 580),
    "ditxl": Published(675e6, 286),
    "vitbase": Published(86.6e6, 152),
}
"""Published checkpoints, by the letters of their names."""

_TENSORS = 300
"""Tensors of a model that is not among them: 24 to 32 layers of 9 to 16."""

_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?) ?([BM])\b")
_RELEASE = re.compile(r"\b(?:R|rel-|release )(\d+)\.(\d+)")


class Compiled(NamedTuple):
    """What a compiler is asked for: elements per sample between layers, and sizes to try."""

    elements: int
    sizes: tuple[int, ...]


_COMPILED: Mapping[str, Compiled] = {
    "llama27b": Compiled(4096 * 2048, sizes_tried(MicroBatchPolicy(), 128, 1)),
    "gptj6b": Compiled(4096 * 2048, sizes_tried(MicroBatchPolicy(), 64, 2)),
    "esm235m": Compiled(480 * 1026, (64,)),
}
"""Runs of logs whose rows of compiling do not state them: N0009, N0007, N0008."""


def published(row: Row) -> Published:
    """Return the size of a row's model; CannotPredict if the row does not tell it.

    The column ``model_params_b`` precedes the published size, which precedes the size in the name.
    """
    workload = row.text("workload")
    letters = letters_of(workload)
    known = _longest(letters, _MODELS)
    stated = row.number("model_params_b")
    if stated is not None:
        return Published(stated * 1e9, known.tensors if known else _TENSORS)
    if known:
        return known
    if sizes := _SIZE.findall(workload.replace("-", " ")):
        number, unit = sizes[-1]
        return Published(float(number) * {"B": 1e9, "M": 1e6}[unit], _TENSORS)
    raise CannotPredict(f"no size of a model in {workload!r}", code="model-size-not-stated")


def compiled(row: Row) -> Compiled:
    """Return what a row compiles; CannotPredict if neither the row nor a known log states it."""
    hidden, length, batch = (row.integer(key) for key in ("hidden", "seq_len", "global_batch"))
    if hidden and length and batch:
        policy = MicroBatchPolicy(row.integer("micro_batch_per_csx") or "auto")
        return Compiled(hidden * length, sizes_tried(policy, batch, row.integer("num_csx") or 1))
    if known := _longest(letters_of(row.text("workload")), _COMPILED):
        return known
    raise CannotPredict("width, length and batch are not stated", code="shape-not-stated")


def sent(row: Row) -> tuple[int, int]:
    """Return tensors and bytes of a row's initial weights, with their state if they have one."""
    model = published(row)
    copies = 3 if "state from a checkpoint" in row.text("locator") else 1
    return copies * model.tensors, copies * round(model.parameters) * MASTER_BYTES


def saved_bytes(row: Row) -> int:
    """Return the bytes of a row's checkpoint."""
    return checkpoint_bytes(round(published(row).parameters), ADAMW_STATE_BYTES)


def hosts_of(row: Row) -> HostSpec:
    """Return the hosts of a row, with the software of its release.

    Releases 2.0 and 2.1 took 68 ms for each tensor of initial weights, which BERT-large (H0005),
    GPT-2 and LLaMA-2 show. Release 1 sent them no faster than one process writes checkpoints.
    """
    hosts = machine_of(row).system.hosts
    return hosts.model_copy(update=release_changes(row, hosts))


def release_changes(row: Row, hosts: HostSpec) -> dict[str, int]:
    """Return the numbers of hosts that were others in the release of a row."""
    found = _RELEASE.search(f"{row.text('software')} {row.text('workload')}")
    if found is None or (release := (int(found[1]), int(found[2]))) >= (2, 2):
        return {}
    changes = {"tensor_ps": 68 * PS_PER_MS}
    if release < (2, 0):
        changes["send_bandwidth_bytes_per_s"] = hosts.save_bandwidth_bytes_per_s
    return changes


def _programming_ps(row: Row) -> int:
    return machine_of(row).system.programming_ps


def _compile_ps(row: Row) -> int:
    asked = compiled(row)
    return compile_ps(hosts_of(row), asked.sizes, asked.elements)


def _initial_weights_ps(row: Row) -> int:
    return initial_weights_ps(hosts_of(row), *sent(row))


def _checkpoint_ps(row: Row) -> int:
    return checkpoint_ps(hosts_of(row), saved_bytes(row))


def _other_ps(row: Row) -> int:
    raise CannotPredict(
        f"no calibration row of {row.text('workload')!r}", code="no-calibration-row"
    )


Known = TypeVar("Known")


def _longest(letters: str, known: Mapping[str, Known]) -> Known | None:
    """Return the value of the longest name that occurs in ``letters``."""
    return known[max(names, key=len)] if (names := [n for n in known if n in letters]) else None


def _family(name: str, words: str, time_ps: Callable[[Row], int]) -> Family:
    """Return the family of rows whose workload matches ``words``, a lower-case pattern."""

    def knows(row: Row) -> bool:
        is_start_up = row.kind == "training" and row.text("phase") == "setup"
        return is_start_up and re.search(words, row.text("workload").lower()) is not None

    def predict(row: Row) -> float:
        if row.unit not in SECONDS:
            raise CannotPredict(
                f"start-up times are in s or minutes, not in {row.unit}", code="unit-not-predicted"
            )
        return seconds(time_ps(row)) / SECONDS[row.unit]

    return Family(name, knows, predict)


FAMILIES: tuple[Family, ...] = (
    _family("start-up compile", r"\bcompil\w+ .*no cache", _compile_ps),
    _family(
        "start-up programming",
        "(device|wafer) programming|programming the (device|wafer)",
        _programming_ps,
    ),
    _family("start-up initial weights", "initial weights", _initial_weights_ps),
    _family("start-up checkpoint", r"\b(sav|writ)\w* (\w+ )?checkpoint", _checkpoint_ps),
    _family("start-up", "", _other_ps),
)
