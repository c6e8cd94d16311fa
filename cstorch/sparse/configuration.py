"""Sparsity as configuration: a number, a mapping, or a list of mappings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cstorch.sparse.algorithm import SparsityAlgorithm, Static
from cstorch.sparse.dynamic import GMP, SET, RigL
from cstorch.sparse.filters import FilterCallable, default_sparse_param_filter, make_param_filter
from cstorch.sparse.group import Group
from waferstream.core.config import Config, validate
from waferstream.core.errors import ConfigError
from waferstream.core.sparsity.groups import Groups, SparsityGroup, keys_of
from waferstream.core.sparsity.spec import Algorithm

_KINDS: dict[Algorithm, type[SparsityAlgorithm]] = {
    "static": Static,
    "gmp": GMP,
    "set": SET,
    "rigl": RigL,
}


class _Groups(Config):
    sparsity: Groups


def build(groups: Sequence[SparsityGroup], published_name: Callable[[str], str] = str) -> Group:
    """Return the algorithms of validated groups.

    Args:
        groups: The groups.
        published_name: The vendor's name of a parameter, which a filter may match as well.
    """
    made = Group()
    for section in groups:
        made.add(
            filter_of(section.param_filter, published_name), _algorithm(section), section.shown
        )
    return made


def _algorithm(section: SparsityGroup) -> SparsityAlgorithm:
    level = section.schedule if section.sparsity is None else section.sparsity
    given = {key: getattr(section, key) for key in keys_of(section.algorithm)}
    options = {key: value for key, value in given.items() if value is not None}
    return _KINDS[section.algorithm](level, init_method=section.init_method, **options)


def filter_of(
    patterns: str | Iterable[str] | None, published_name: Callable[[str], str]
) -> FilterCallable:
    """Return the filter of globs, by both names of a parameter; the default filter for None."""
    if patterns is None:
        return lambda name, p: default_sparse_param_filter(published_name(name), p)
    selects = make_param_filter(patterns)
    return lambda name, p: selects(name, p) or selects(published_name(name), p)


def configure(config: float | Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Group:
    """Return the algorithms that a number, a mapping or a list of mappings describes.

    Raises:
        ConfigError: A key or value is wrong.
    """
    sections = validate(_Groups, {"sparsity": config}, "cstorch.sparse.configure").sparsity
    if not sections:
        raise ConfigError(
            "sparsity must have a group",
            code="missing-key",
            where="cstorch.sparse.configure",
            value=config,
        )
    return build(sections)
