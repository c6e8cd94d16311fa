"""Configuration of DINO: encoders of images that learn from each other, their heads and losses.

The section names outputs of its parts as the arguments of others (``forward_args``):
``image_model_trunks.output(1,0,0)`` is output 0 of pass 0 of trunk 1,
``ssl_transform.output('global_view')`` an input of the model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import lcm
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveInt, PrivateAttr, model_validator
from pydantic import field_validator as check

from modelzoo.models.dino.parts_config import HeadConfig, KoLeoLossConfig, Loss, TrunkConfig
from modelzoo.models.freezing import NamePattern
from waferstream.core.config import Config, before
from waferstream.core.hyper_schedules.base import HyperSchedule
from waferstream.core.hyper_schedules.decays import CosineDecayLR, LinearLR
from waferstream.workload.model_config import Feature, ModelConfig

INPUTS = ("global_view", "local_view", "collated_masks")
"""The inputs of the model: large crops, small ones, and which patches of the large are hidden."""

TRUNKS, HEADS = "image_model_trunks", "heads"

_OUTPUT = re.compile(r"(image_model_trunks|heads)\.output\((\d+), *(\d+), *(\d+)\)")
_INPUT = re.compile(r"ssl_transform\.output\('?(\w+)'?\)")
_MODEL = re.compile(r"(image_model_trunks|heads)\.model\((\d+)\)")


@dataclass(frozen=True)
class Output:
    """One output of one pass of a trunk or a head."""

    part: str
    number: int
    forward: int
    place: int


Argument = str | Output | None
"""The name of an input, an output of another part, or nothing."""


def _argument(written: Any) -> Argument:
    if written is None or isinstance(written, Output):
        return written
    if match := _OUTPUT.fullmatch(str(written)):
        return Output(match[1], *map(int, match.groups()[1:]))
    match = _INPUT.fullmatch(str(written))
    name = match[1] if match else written
    if name not in INPUTS:
        raise ValueError(f"must be an output of a part, or one of {', '.join(INPUTS)}")
    return str(name)


Arguments = tuple[Annotated[Argument, before(_argument, str | None)], ...]


class Pass(Config):
    """Passes of a part over its arguments."""

    forward_args: tuple[Arguments, ...] = Field(min_length=1)
    stop_grad: bool = False
    """Whether no gradient passes."""


class TrunkPass(Pass):
    """A trunk; each pass has images, nothing, and the masks of hidden patches or nothing."""

    image_model: TrunkConfig


class HeadPass(Pass):
    """A head; each pass has one output of a trunk: 0 of all patches, 1 of the whole image."""

    head_model: HeadConfig


class LossPass(Pass):
    """A loss; each pass has the scores that it compares, or the vectors of images."""

    loss: Loss
    loss_weight: float = 1.0
    stop_grad: Literal[False] = False


class CopyConfig(Config):
    """Initial weights of a part that are those of another one."""

    source: str = Field(pattern=_MODEL.pattern)
    target: str = Field(pattern=_MODEL.pattern)


class AverageSchedule(Config):
    """Start and end of the factor on a moving average."""

    ema_decay_start: float = Field(ge=0, le=1)
    ema_decay_end: float = Field(ge=0, le=1)
    total_steps: PositiveInt


class AverageConfig(CopyConfig):
    """A part, ``target``, whose weights are the moving averages of another one's."""

    scheduler_name: Literal["linear", "cosine"] = "linear"
    scheduler_params: AverageSchedule

    @property
    def decay(self) -> HyperSchedule:
        """The factor on the average after each update."""
        kinds: dict[str, type[CosineDecayLR] | type[LinearLR]] = {
            "cosine": CosineDecayLR,
            "linear": LinearLR,
        }
        own = self.scheduler_params
        return kinds[self.scheduler_name](
            initial_learning_rate=own.ema_decay_start,
            end_learning_rate=own.ema_decay_end,
            total_iters=own.total_steps,
        )


def part_named(reference: str) -> tuple[str, int]:
    """Return the kind and the number of the part in ``heads.model(1)``."""
    match = _MODEL.fullmatch(reference)
    assert match is not None, "checked by the pattern"
    return match[1], int(match[2])


_ARGUMENTS = {"DinoDistillationLoss": (2, 3), "iBOTPatchLoss": (3,), "KoLeoLoss": (1,)}
"""Numbers of arguments of each loss."""


class DinoConfig(ModelConfig):
    """Self-supervised encoders of images (Oquab et al. 2023, DINOv2)."""

    name: str = "dino"
    image_model_trunks: tuple[TrunkPass, ...] = Field(min_length=1)
    heads: tuple[HeadPass, ...] = Field(min_length=1)
    losses: tuple[LossPass, ...] = Field(min_length=1)
    copy_init_weights: tuple[CopyConfig, ...] = ()
    ema: tuple[AverageConfig, ...] = ()
    """Parts that learn by moving averages alone."""
    freeze: tuple[NamePattern, ...] = ()
    """Regular expressions of the vendor's names of weights that stay as they are, or follow
    others by ``ema``."""

    _crops: tuple[int, int] = PrivateAttr(default=(2, 8))

    @property
    def group_of_samples(self) -> int:
        losses = (each.loss for each in self.losses)
        searched = (each.group_size for each in losses if isinstance(each, KoLeoLossConfig))
        dropped = (each.image_model.drop_path_group for each in self.image_model_trunks)
        return lcm(*searched, *dropped)

    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:  # noqa: ARG002
        trunk = self.image_model_trunks[0].image_model
        num_large, num_small = self._crops
        local = trunk.interpolate_position_embedding
        grid = trunk.grid if local is None else local.local_patch_dims
        small = tuple(n * size for n, size in zip(grid, trunk.patch_size, strict=True))
        return (
            Feature("global_view", (num_large, trunk.num_channels, *trunk.image_size)),
            Feature("local_view", (num_small, trunk.num_channels, *small)),
            Feature("collated_masks", (num_large, trunk.grid[0] * trunk.grid[1]), 2),
        )

    def for_data(self, section: Mapping[str, Any]) -> Self:
        """Return the configuration with the numbers of crops that a dataloader section states."""
        crops = section.get("ssl_transform", {}).get("multi_crop_transform", {})
        changed = self.model_copy()
        changed._crops = (crops.get("global_num_crops", 2), crops.get("local_num_crops", 8))
        return changed

    @check("copy_init_weights", "ema", "freeze", mode="before")
    @classmethod
    def _none_is_empty(cls, value: Any) -> Any:
        return () if value is None else value

    @model_validator(mode="after")
    def _parts_exist(self) -> Self:
        sizes = {TRUNKS: len(self.image_model_trunks), HEADS: len(self.heads)}
        for each in (*self.copy_init_weights, *self.ema):
            for part, number in map(part_named, (each.source, each.target)):
                if number >= sizes[part]:
                    raise ValueError(f"{part}.model({number}) does not exist")
        return self

    @model_validator(mode="after")
    def _passes_fit(self) -> Self:
        for trunk in self.image_model_trunks:
            for images, nothing, masks in map(_three, trunk.forward_args):
                _check(images in INPUTS[:2] and nothing is None, "a trunk reads a view")
                _check(masks in (None, INPUTS[2]), "the third argument of a trunk is masks")
                is_hidden = masks is not None
                _check(
                    not is_hidden or trunk.image_model.use_masked_patches,
                    "masks require use_masked_patches",
                )
        for head in self.heads:
            for given in head.forward_args:
                first = given[0] if len(given) == 1 else None
                is_output = isinstance(first, Output) and first.part == TRUNKS
                _check(is_output, "a head reads an output of a trunk")
        for loss in self.losses:
            for given in loss.forward_args:
                _check(len(given) in _ARGUMENTS[loss.loss.name], "a loss reads scores of heads")
        for each in (*self.heads, *self.losses):
            for given in each.forward_args:
                self._check_outputs(given)
        return self

    def _check_outputs(self, arguments: Arguments) -> None:
        """Raise ValueError for an output that no part has."""
        for given in arguments:
            if isinstance(given, Output):
                is_trunk = given.part == TRUNKS
                known: tuple[Pass, ...] = self.image_model_trunks if is_trunk else self.heads
                _check(given.number < len(known), f"{given.part} has no model {given.number}")
                passes = known[given.number].forward_args
                _check(given.forward < len(passes), f"model {given.number} has too few passes")
                _check(given.place < (2 if is_trunk else 1), "no such output")


def _three(arguments: Arguments) -> tuple[Argument, Argument, Argument]:
    """Return the arguments of a trunk; ValueError unless there are three."""
    _check(len(arguments) == 3, "a trunk has three arguments")
    first, second, third = arguments
    return first, second, third


def _check(holds: bool, rule: str) -> None:
    if not holds:
        raise ValueError(f"forward_args do not fit: {rule}")
