"""Blocks of commands in the documents, and those that no test executes, with the reason."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCUMENTS = ("README.md", "examples/README.md", "docs/*.md", "docs/tutorials/*.md")
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r" *(make|python|waferstream|pip|ray|kubectl|sbatch) ")

NOT_RUN = {
    "make train": "it installs from the network; the CI job of every change runs it",
    "make test": "it is the test suite",
    "pip install '.[train]' ./modelzoo ./waferstream_compat": "it needs the network; tests/unit/test_packaging.py "
    "installs what is packaged",
    "pip install '.[simulate]' ./modelzoo": "it needs the network",
    "pip install --constraint requirements.lock '.[train]' ./modelzoo": "it needs the network",
    "python run.py --params params.yaml --num_csx=4": "it is `make train` without the set-up",
    "python run.py --params params.yaml --num_csx=2 --model_dir two_systems": "two minutes; "
    "tests/integration/test_run_on_ray.py runs a smaller one",
    "python -m scripts.scaling_curve --params params.yaml --num_csx 1,2,4,8 --out scaling": "eight "
    "minutes; tests/unit/waferstream/scaling/test_experiment.py runs a smaller one",
    "waferstream checkpoint convert-config my_model": "it needs a model of transformers; "
    "tests/unit/waferstream/cli/tools/checkpoint converts some",
    "waferstream generate": "it needs a trained model; tests/integration/test_serving.py trains one",
    "waferstream batch": "it needs a trained model; tests/integration/test_batch.py trains one",
    "waferstream serve": "it ends with a signal; tests/integration/test_serving.py sends it one",
    "waferstream explore modelzoo/params/gpt3_1.3b.yaml": "it ends with a signal, and its page takes "
    "minutes; tests/unit/waferstream/explorer asks both",
    "waferstream runs": "it needs a trained model; tests/unit/waferstream/cli/tools trains some",
    'pip install "waferstream[ecosystem]"': "it needs the network",
    "pip install '.[serve,ecosystem]' peft": "it needs the network",
    "python -m benchmarks.gpu_session": "it takes minutes; tests/unit/benchmarks runs its parts",
    "python -m validation": "it writes the documents themselves; tests/unit/validation runs it",
}
"""Commands, by how they begin, to the reason why no test executes them."""

NEEDS_HOSTS = ("docs/deployment.md",)
"""Documents whose commands need several hosts, or Kubernetes, or Slurm."""

NEEDS_MANAGEMENT = ("docs/appliance.md",)
"""Documents whose commands ask an appliance; tests/integration/test_appliance_walk.py starts one."""


@dataclass(frozen=True)
class CommandBlock:
    """The commands of a block marked ``bash``."""

    document: str
    commands: tuple[str, ...]

    @property
    def to_run(self) -> tuple[str, ...]:
        """The commands that a test executes."""
        if self.document in (*NEEDS_HOSTS, *NEEDS_MANAGEMENT):
            return ()
        return tuple(each for each in self.commands if reason_of(each) is None)


def reason_of(command: str) -> str | None:
    """Return why no test executes a command, None if one does."""
    return next((why for begin, why in NOT_RUN.items() if command.startswith(begin)), None)


def command_blocks() -> list[CommandBlock]:
    """Return all blocks marked ``bash`` in the documents."""
    return [
        CommandBlock(document, _commands(text))
        for document, language, text in _blocks()
        if language == "bash"
    ]


def programs(document: str) -> list[str]:
    """Return all blocks of a document that are marked ``python``."""
    return [text for name, language, text in _blocks() if (name, language) == (document, "python")]


def unmarked_blocks() -> list[str]:
    """Return the blocks that hold commands and are not marked ``bash``, by their first lines."""
    return [
        f"{document}: {text.splitlines()[0]}"
        for document, language, text in _blocks()
        if not language and _COMMAND.match(text)
    ]


def _blocks() -> list[tuple[str, str, str]]:
    """Return document, language and text of every block."""
    paths = [path for pattern in DOCUMENTS for path in sorted(ROOT.glob(pattern))]
    return [
        (str(path.relative_to(ROOT)), language, text)
        for path in paths
        for _, language, text in _BLOCK.findall(path.read_text(encoding="utf-8"))
    ]


def _commands(text: str) -> tuple[str, ...]:
    """Return the commands of a block, without comments, each on one line."""
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    commands = (re.sub(r"\s+#.*", "", line).strip() for line in lines)
    return tuple(command for command in commands if command)
