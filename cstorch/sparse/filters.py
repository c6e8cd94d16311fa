"""Selection of parameters by glob patterns of their names."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable

import torch

FilterCallable = Callable[[str, torch.Tensor], bool]
"""Whether a parameter, given by name and tensor, is selected."""


def convert_glob_to_regex(pattern: str) -> re.Pattern[str]:
    """Return a regular expression for a glob; a pattern in ``re:...`` is one already."""
    if pattern.startswith("re:"):
        return re.compile(pattern.removeprefix("re:"))
    return re.compile(fnmatch.translate(pattern))


def make_param_filter(
    patterns: str | FilterCallable | Iterable[str | FilterCallable],
) -> FilterCallable:
    """Return a filter that selects what any of the globs, or filters, selects.

    A glob that begins with ``!`` excludes what it matches.
    """
    given = [patterns] if isinstance(patterns, str) or callable(patterns) else list(patterns)
    filters = [item for item in given if not isinstance(item, str)]
    globs = [item for item in given if isinstance(item, str)]
    wanted = [convert_glob_to_regex(glob) for glob in globs if not glob.startswith("!")]
    excluded = [convert_glob_to_regex(glob[1:]) for glob in globs if glob.startswith("!")]

    def select(name: str, parameter: torch.Tensor) -> bool:
        if any(pattern.match(name) for pattern in excluded):
            return False
        found = any(pattern.match(name) for pattern in wanted)
        return found or any(item(name, parameter) for item in filters)

    return select


def default_sparse_param_filter(name: str, parameter: torch.Tensor) -> bool:
    """Return whether sparsity applies to a parameter by default.

    It does to tensors of more than one dimension whose name is not that of an embedding, a norm or
    an output head (cerebras_pytorch 2.10, ``sparse``).
    """
    words = ("embedding", "norm", "lm_head", "pe_helper")
    return parameter.dim() > 1 and not any(word in name.lower() for word in words)
