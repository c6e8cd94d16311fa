"""What the words of a row tell beyond its columns: a model and its size, the software's release."""

from __future__ import annotations

import re
from collections.abc import Mapping

from validation.families.replay import CannotReplay
from validation.rows.row import Row

_PARAMETERS: Mapping[str, float] = {
    "gptj": 6.05e9,
    "gptj6b": 6.05e9,
    "gptneox20b": 20.55e9,
    "llama27b": 6.74e9,
    "llama213b": 13.02e9,
    "llama270b": 68.98e9,
    "llama38b": 8.03e9,
    "llama318b": 8.03e9,
    "llama370b": 70.55e9,
    "mistral7b": 7.24e9,
    "falcon7b": 7.22e9,
    "esm235m": 33.5e6,
    "esm2650m": 651e6,
    "esm23b": 2.84e9,
    "bertbase": 110e6,
    "bertlarge": 336e6,
    "gpt2small": 124e6,
    "gpt2medium": 355e6,
    "gpt2large": 774e6,
    "gpt2xl": 1.558e9,
    "ditxl": 675e6,
}
"""Of published checkpoints, by the letters of their names."""

_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?) ?([BM])\b")
_RELEASE = re.compile(r"\b(?:R|rel-|release )(\d+)\.\d+")


def letters_of(name: str) -> str:
    """Lower case without the marks that people set differently: ``Llama 3.1-8B`` is llama318b."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def num_parameters(row: Row) -> int:
    """What the column ``model_params_b`` states, else a published size, else that of the name.

    CannotReplay if the row does not tell.
    """
    stated = row.number("model_params_b")
    if stated is not None:
        return round(stated * 1e9)
    workload = row.text("workload")
    letters = letters_of(workload)
    if known := [name for name in _PARAMETERS if name in letters]:
        return round(_PARAMETERS[max(known, key=len)])
    if sizes := _SIZE.findall(workload.replace("-", " ")):
        number, unit = sizes[-1]
        return round(float(number) * {"B": 1e9, "M": 1e6}[unit])
    raise CannotReplay(f"no size of a model in {workload!r}")


def major_release(row: Row) -> int:
    """The major release of the software; 2, the current one, where the row names none."""
    found = _RELEASE.search(f"{row.text('software')} {row.text('workload')}")
    return int(found[1]) if found else 2
