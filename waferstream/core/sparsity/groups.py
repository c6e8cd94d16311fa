"""Groups of sparse weights as configuration: a number, a mapping, or a list of mappings.

Their algorithms are built by ``cstorch.sparse``, which needs torch; a params file is read without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from waferstream.core.config import Config, before
from waferstream.core.errors import ConfigError
from waferstream.core.sparsity.levels import AnyLevel, Constant, Fraction
from waferstream.core.sparsity.spec import Algorithm, UpdateSteps


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


LevelSection = Fraction | AnyLevel


class SparsityGroup(Config):
    """One algorithm and the parameters that it makes sparse."""

    algorithm: Annotated[Algorithm, before(_lower, Algorithm)] = "static"
    sparsity: LevelSection | None = None
    """The share of zeros: a number, or a schedule."""
    schedule: LevelSection | None = None
    """Another name of ``sparsity``."""
    init_method: Literal["random", "topk", "from_zeros", "checkerboard"] = "random"
    """How first masks are made."""
    update: UpdateSteps | None = None
    """When masks change; after every step by default."""
    drop_fraction: LevelSection | None = None
    """The share of the remaining weights that an update replaces (set, rigl); 0.3 by default."""
    balance_in_groups: PositiveInt | None = None
    """Groups of inputs with the same density (rigl)."""
    balance_out_groups: PositiveInt | None = None
    """Groups of outputs with the same density (rigl)."""
    param_filter: str | Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Globs of the names of parameters; matrices except embeddings and norms by default."""

    @model_validator(mode="before")
    @classmethod
    def _read_type(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and "type" in data and "algorithm" not in data:
            return {("algorithm" if k == "type" else k): value for k, value in data.items()}
        return data

    @model_validator(mode="after")
    def _keys_of_the_algorithm(self) -> Self:
        if self.sparsity is not None and self.schedule is not None:
            raise ValueError("schedule is another name of sparsity; give one of both")
        level = self.schedule if self.sparsity is None else self.sparsity
        if level is None and self.init_method != "from_zeros":
            raise ValueError("sparsity must be given, unless init_method is from_zeros")
        if self.algorithm == "gmp" and (level is None or isinstance(level, float | Constant)):
            raise ValueError("gmp needs a schedule of sparsity; a constant one is static")
        if self.balance_in_groups is not None and self.balance_out_groups is not None:
            raise ValueError("give balance_in_groups or balance_out_groups")
        own = keys_of(self.algorithm)
        for key in ("update", "drop_fraction", "balance_in_groups", "balance_out_groups"):
            if getattr(self, key) is not None and key not in own:
                raise ValueError(f"{key} has no meaning for {self.algorithm}")
        return self

    @property
    def shown(self) -> str:
        """The filter as the user has written it."""
        globs = self.param_filter or "the default filter"
        return globs if isinstance(globs, str) else ", ".join(globs)


def keys_of(algorithm: Algorithm) -> tuple[str, ...]:
    """Return the keys that only some algorithms have."""
    if algorithm == "static":
        return ()
    balance = ("balance_in_groups", "balance_out_groups") if algorithm == "rigl" else ()
    return ("update",) if algorithm == "gmp" else ("update", "drop_fraction", *balance)


def as_groups(given: Any) -> Any:
    """Return the groups of a file or a program as a list; the vendor's ``groups`` unpacked.

    A number is the share of zeros of one static group.
    """
    if isinstance(given, Mapping) and "groups" in given:
        given = given["groups"]
    if isinstance(given, int | float) and not isinstance(given, bool):
        return [{"sparsity": given}]
    items = [given] if isinstance(given, Mapping | SparsityGroup) else given
    if not isinstance(items, Sequence) or isinstance(items, str):
        return items
    return [_flat(item) for item in items]


def _flat(item: Any) -> Any:
    """Return a group without the mapping ``params`` that classes of configurations write."""
    if not isinstance(item, Mapping) or not isinstance(item.get("params"), Mapping):
        return item
    return {**{k: v for k, v in item.items() if k != "params"}, **item["params"]}


Groups = Annotated[
    tuple[SparsityGroup, ...],
    before(as_groups, Fraction | SparsityGroup | list[SparsityGroup]),
]


def check_updates(groups: Sequence[SparsityGroup], last_step: int, where: str) -> None:
    """Check that masks change within a run.

    Args:
        groups: The groups of the run.
        last_step: Its last step.
        where: The key of the groups.

    Raises:
        ConfigError: The first change, or a listed one, comes after the last step.
    """
    for number, group in enumerate(groups):
        if group.update is None:
            continue
        first, last = group.update.first, group.update.last
        beyond = first if last is None else last
        if beyond > last_step:
            raise ConfigError(
                "masks must change within the run",
                code="sparsity-schedule-beyond-run",
                where=f"{where}[{number}].update",
                value=f"a change after step {beyond}",
                rule=f"the run ends with step {last_step}",
                remedy="lower freq, start or steps, or train longer",
            )
