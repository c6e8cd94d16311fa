"""Algorithms whose masks change during training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch

from cstorch.sparse.algorithm import InitFunction, SparsityAlgorithm
from cstorch.sparse.levels import Given, level_of, tabulated
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError
from waferstream.core.sparsity.levels import Constant
from waferstream.core.sparsity.spec import Algorithm, UpdateSteps, WeightSparsity


class DynamicSparsityAlgorithm(SparsityAlgorithm):
    """Masks that change during training.

    Args:
        sparsity: The share of zeros, a number or a schedule.
        update: When masks change: ``{"freq", "start", "stop"}`` or ``{"steps"}``; None for after
            every step. Weights are dense until then where step 0 is not among them.
        init_method: How first masks are made.
    """

    def __init__(
        self,
        sparsity: Given = None,
        update: Mapping[str, Any] | UpdateSteps | None = None,
        init_method: str | InitFunction = "random",
    ) -> None:
        super().__init__(sparsity, init_method)
        given = update if isinstance(update, UpdateSteps) else dict(update or {})
        self.update_steps = (
            given
            if isinstance(given, UpdateSteps)
            else validate(UpdateSteps, given, f"{self._name}, update")
        )

    def spec(
        self, name: str, parameter: torch.Tensor, num_updates: int, seed: int
    ) -> WeightSparsity:
        return replace(super().spec(name, parameter, num_updates, seed), update=self.update_steps)


class GMP(DynamicSparsityAlgorithm):
    """Gradual magnitude pruning: the smallest weights become zero, by a schedule.

    Zhu and Gupta 2017, arXiv:1710.01878.

    Raises:
        ConfigError: The share of zeros is constant.
    """

    algorithm: ClassVar[Algorithm | None] = "gmp"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self._level is None or isinstance(self._level, Constant):
            raise ConfigError(
                "GMP must have a schedule of sparsity",
                code="gmp-without-schedule",
                where=self._name,
                rule="with a constant share of zeros the masks would never change",
                remedy="give sparsity a schedule, or use algorithm: static",
            )


class SET(DynamicSparsityAlgorithm):
    """Sparse evolutionary training: small weights are replaced by others at random places.

    Mocanu et al. 2018, Nature Communications 9:2383.

    Args:
        drop_fraction: The share of the remaining weights that an update replaces.
        arguments: Those of ``DynamicSparsityAlgorithm``.
        options: The same, by name.
    """

    algorithm: ClassVar[Algorithm | None] = "set"

    def __init__(self, *arguments: Any, drop_fraction: Given = 0.3, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._drop_fraction = level_of(drop_fraction, f"{self._name}, drop_fraction")

    def spec(
        self, name: str, parameter: torch.Tensor, num_updates: int, seed: int
    ) -> WeightSparsity:
        made = super().spec(name, parameter, num_updates, seed)
        return replace(made, drop_fraction=tabulated(self._drop_fraction, num_updates))


class RigL(SET):
    """Rigging the lottery: small weights are replaced where the gradient is largest.

    Evci et al. 2020, arXiv:1911.11134.

    Args:
        balance_in_groups: Groups of inputs (columns) with the same density.
        balance_out_groups: Groups of outputs (rows) with the same density.
        arguments: Those of ``DynamicSparsityAlgorithm``.
        options: The same, and ``drop_fraction``, by name.

    Raises:
        ConfigError: Both kinds of groups are given.
    """

    algorithm: ClassVar[Algorithm | None] = "rigl"

    def __init__(
        self,
        *arguments: Any,
        balance_in_groups: int | None = None,
        balance_out_groups: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        given = (balance_in_groups, balance_out_groups)
        self._groups = tuple(1 if groups is None else groups for groups in given)
        if 1 not in self._groups or min(self._groups) < 1:
            raise ConfigError(
                "RigL must balance inputs or outputs, in one group at least",
                code="balanced-twice",
                where=self._name,
                value=f"{balance_in_groups} and {balance_out_groups}",
                remedy="give balance_in_groups or balance_out_groups",
            )

    def spec(
        self, name: str, parameter: torch.Tensor, num_updates: int, seed: int
    ) -> WeightSparsity:
        made = super().spec(name, parameter, num_updates, seed)
        in_groups, out_groups = self._groups
        outputs, inputs = (*parameter.shape, 1, 1)[:2]
        if (
            inputs % in_groups
            or outputs % out_groups
            or (parameter.ndim != 2 and max(self._groups) > 1)
        ):
            raise ConfigError(
                "a balanced weight must be a matrix whose rows or columns divide into the groups",
                code="balance-not-divisible",
                where=name,
                value=f"shape {tuple(parameter.shape)}, groups {in_groups} x {out_groups}",
                remedy="choose a number of groups that divides, or another param_filter",
            )
        return replace(made, in_groups=in_groups, out_groups=out_groups)
