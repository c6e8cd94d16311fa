"""Groups of parameters, each made sparse by an algorithm of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import torch

from cstorch.sparse.algorithm import SparsityAlgorithm
from cstorch.sparse.filters import FilterCallable, make_param_filter
from waferstream.core.errors import ConfigError

Filter = str | FilterCallable | Iterable[str | FilterCallable]


class Member(NamedTuple):
    """An algorithm, the parameters that it takes, and how the user has named them."""

    selects: Callable[[str, torch.Tensor], bool]
    algorithm: SparsityAlgorithm
    shown: str


class Group(SparsityAlgorithm):
    """Algorithms by filters; a parameter belongs to the first whose filter selects it.

    Args:
        groups: Algorithms by glob, ``re:`` pattern or function of name and parameter.
    """

    algorithm = "static"  # of no parameter: each belongs to a member

    def __init__(
        self, groups: Mapping[str | FilterCallable, SparsityAlgorithm] | None = None
    ) -> None:
        super().__init__(0.0)
        self._members: list[Member] = []
        for selects, algorithm in (groups or {}).items():
            self.add(selects, algorithm)

    def __getitem__(self, index: int) -> SparsityAlgorithm:
        return self._members[index].algorithm

    def __len__(self) -> int:
        return len(self._members)

    def add(self, filter: Filter, algorithm: SparsityAlgorithm, shown: str = "") -> None:
        """Add an algorithm for the parameters that a filter selects, ``shown`` in errors.

        Raises:
            ConfigError: The algorithm is none, or a group.
        """
        if not isinstance(algorithm, SparsityAlgorithm) or isinstance(algorithm, Group):
            raise ConfigError(
                "a group must be made of algorithms",
                code="not-a-sparsity-algorithm",
                where="cstorch.sparse.Group.add",
                value=type(algorithm).__name__,
                remedy="extend(group) adds the algorithms of another group",
            )
        given = [filter] if isinstance(filter, str) or callable(filter) else list(filter)
        shown = shown or ", ".join(getattr(item, "__name__", str(item)) for item in given)
        self._members.append(Member(make_param_filter(given), algorithm, shown))

    def extend(self, group: Group) -> None:
        """Add the algorithms of another group behind those of this one."""
        self._members += group._members

    def assigned(self) -> dict[torch.Tensor, tuple[str, SparsityAlgorithm]]:
        """Return the parameters that become sparse, with their names and algorithms.

        Raises:
            ConfigError: The group was applied to no model, or a filter selects nothing.
        """
        found: dict[torch.Tensor, tuple[str, SparsityAlgorithm]] = {}
        named = super().assigned()
        for member in self._members:
            selected = {p: name for p, (name, _) in named.items() if member.selects(name, p)}
            if not selected:
                raise ConfigError(
                    "a filter must select parameters of the model",
                    code="sparsity-filter-matches-nothing",
                    where="param_filter",
                    value=member.shown,
                    rule=f"parameters: {', '.join(sorted(n for n, _ in named.values())[:4])}, ...",
                )
            for parameter, name in selected.items():
                found.setdefault(parameter, (name, member.algorithm))
        return found
