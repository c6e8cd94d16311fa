"""The commands that run a params file, and the flags that each takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

from waferstream.cli.flags.config import COMMAND_FLAGS, CONFIG_FLAGS, REAL_MACHINE_FLAGS
from waferstream.cli.flags.flag import Flag
from waferstream.cli.flags.run import RUN_FLAGS, SIMULATION_FLAGS, WAFER_TRACE
from waferstream.cli.frame.words import spelled

Groups = Mapping[str, tuple[Flag, ...]]
"""Flags by the title of their group in the help."""

ALL_FLAGS: Groups = {
    "run and simulation": RUN_FLAGS,
    "configuration (overrides the params file)": CONFIG_FLAGS,
    "flags of the real machine (accepted, no effect here)": REAL_MACHINE_FLAGS,
}

_OF_FIRST_WORDS = {"params", "mode", "device"}
"""Flags of ``run.py`` that a command states otherwise."""

_OF_RUNS = {"fault", "min_num_csx", "session", "detach", "compile_only", "validate_only"}
"""Flags without effect on a simulation."""

_COMMAND_OF = {
    "simulate": "simulate",
    "wafer_trace": "trace",
    **dict.fromkeys(("mode train", "mode train_and_eval"), "train"),
    "mode eval": "eval",
    "mode eval_all": "validate_all",
}
"""Commands in the place of flags of ``run.py``, and of values of its ``--mode``."""

_SHOWN_ALWAYS = {"params", "model_dir", "cluster", "num_csx", "batch_size", "json", "debug"}


@dataclass(frozen=True)
class Form:
    """One way to type a run: its first words, and what is left out or implied."""

    name: str
    example: str
    says: Mapping[str, Any] = field(default_factory=dict)
    """Values of flags that the name of the command gives."""
    without: Set[str] = frozenset()
    """Flags that it does not take."""
    first: tuple[Flag, ...] = COMMAND_FLAGS
    shown: Set[str] | None = None
    """Flags in its help, beside those of all; None for every flag."""

    @property
    def groups(self) -> Groups:
        """The flags that it takes."""
        if not self.first:
            return ALL_FLAGS
        without = self.without | self.says.keys() | _OF_FIRST_WORDS
        rest = {
            title: tuple(flag for flag in flags if flag.name not in without)
            for title, flags in ALL_FLAGS.items()
        }
        return {"what to run": self.first, **rest}

    @property
    def flags(self) -> Iterator[Flag]:
        """All flags that it takes."""
        return chain.from_iterable(self.groups.values())

    def shows(self, flag: Flag) -> bool:
        """Return whether its help has a flag."""
        return self.shown is None or flag.name in self.shown | _SHOWN_ALWAYS

    def flag(self, word: str) -> Flag | None:
        """Return its flag that a word is, if it is one."""
        found = (flag for flag in self.flags if not flag.positional)
        return next((flag for flag in found if spelled(word) in flag.spelling), None)


_SIMULATION = {"simulate", "wafer_trace", *(flag.name for flag in SIMULATION_FLAGS)}
_CURVE = {"sweep", "weak_scaling", "explain", "activation_zeros"}
"""Flags of a simulation that are about its curve."""
_TRAINING = {"max_steps", "num_steps", "checkpoint_path", "compile_only", "validate_only", "shrink"}
_MACHINE = {"system", "machine", "token_budget"}
_EVALUATION = {"checkpoint_path", "eval_steps"}

FORMS: Mapping[str, Form] = {
    form.name: form
    for form in (
        Form("run", "--params params.yaml", first=()),
        Form(
            "train",
            "params.yaml --num_csx 4 --model.hidden_size 512",
            says={"mode": "train_and_eval"},
            without=_SIMULATION,
            shown=_TRAINING | {"local", "trace"},
        ),
        Form(
            "eval",
            "params.yaml --checkpoint_path model_dir/checkpoint_120.mdl",
            says={"mode": "eval"},
            without=_SIMULATION,
            shown=_EVALUATION | {"local", "trace"},
        ),
        Form(
            "simulate",
            "params.yaml --num_csx 1-64:x2 --machine.swarmx.fan_out 2,4",
            says={"simulate": True},
            without={"wafer_trace", *_OF_RUNS},
            shown={"sweep", "weak_scaling", "explain", "trace", *_MACHINE},
        ),
        Form(
            "plan",
            "params.yaml --num_csx 4 --system CS-3 --token_budget 300B",
            says={"simulate": True},
            without={"wafer_trace", "trace", "trace_limit", *_CURVE, *_OF_RUNS},
            shown=_MACHINE,
        ),
        Form(
            "trace",
            "params.yaml decoder.0:softmax@4x6",
            first=(*COMMAND_FLAGS, WAFER_TRACE),
            without={"trace", "trace_limit", *_OF_RUNS, *_SIMULATION},
            shown={"wafer_trace"},
        ),
        Form("fit", "params.yaml --num_csx 4", says={"mode": "train_and_eval"}, shown=_TRAINING),
        Form(
            "validate",
            "params.yaml --checkpoint_path model_dir/checkpoint_120.mdl",
            says={"mode": "eval"},
            shown=_EVALUATION,
        ),
        Form("validate_all", "params.yaml", says={"mode": "eval_all"}, shown=_EVALUATION),
    )
}


def instead(name: str, words: Sequence[str]) -> str | None:
    """Return why a command refuses a flag that another form of a run takes, and what to type.

    Args:
        name: The command.
        words: What follows it.
    """
    file = next((word for word in words if word.endswith((".yaml", ".yml"))), "PARAMS")
    for word, following in pairwise([*words, ""]):
        flag = FORMS["run"].flag(word)
        if flag is None or FORMS[name].flag(word):
            continue
        value = word.partition("=")[2] or following
        others = [form.name for form in FORMS.values() if form.first and form.flag(word)]
        known = _COMMAND_OF.get(flag.name) or _COMMAND_OF.get(f"{flag.name} {value}")
        command = known or next(iter(others), name)
        more = f" --{flag.name}" if others and not known else ""
        return f"{name} takes no --{flag.name}; type: waferstream {command} {file}{more}"
    return None
