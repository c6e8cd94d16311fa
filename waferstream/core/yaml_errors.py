"""What is wrong with a file that is no YAML, in the words of who wrote it."""

from __future__ import annotations

import yaml

from waferstream.core.errors import ConfigError

_TAB = "indent with spaces: YAML takes no tabs"
_INDENT = (
    "indent the keys of one section by the same number of spaces, and write a space after each ':'"
)
_ALIAS = "write &NAME behind the key that is meant, above the line, or correct the name"
_ENDS = "close every bracket and quote"

_BEGINNINGS = {
    b"GGUF": "a GGUF file of weights",
    b"\x89HDF": "an HDF5 file, as checkpoints (.mdl) and tokens are",
    b"PK\x03\x04": "a zip file, as weights of PyTorch are",
}


def not_yaml(where: str, text: str, error: yaml.YAMLError | ValueError) -> ConfigError:
    """Return the error for a text that YAML cannot read: its line, what is wrong, what helps.

    Args:
        where: The file.
        text: What was read.
        error: What YAML says.
    """
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return ConfigError("the file is not YAML", code="file-not-yaml", where=where, value=error)
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    problem = str(getattr(error, "problem", ""))
    return ConfigError(
        "the file is not YAML",
        code="file-not-yaml",
        where=f"{where}, line {mark.line + 1}, column {mark.column + 1}",
        value=repr(line.strip(" ")) if line else "the end of the file",
        rule=problem,
        remedy=_remedy(line, problem),
    )


def _remedy(line: str, problem: str) -> str:
    """Return what helps against a problem in a line."""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return _TAB
    if "alias" in problem:
        return _ALIAS
    if "stream end" in problem or "end of stream" in problem:
        return _ENDS
    return _INDENT


def not_text(where: str, content: bytes, reason: str) -> ConfigError:
    """Return the error for a file of bytes that are no text, with what it seems to be."""
    found = (kind for start, kind in _BEGINNINGS.items() if content.startswith(start))
    kind = next(found, None)
    return ConfigError(
        "the file is not text",
        code="file-not-text",
        where=where,
        value=kind or reason,
        rule="a params file, or cluster.yaml, is YAML",
        remedy=kind and "name the params file here; a checkpoint is named with --checkpoint_path",
    )
