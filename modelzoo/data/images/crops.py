"""Several random crops of every image, each changed on its own (Caron et al. 2020, multi-crop)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, TypeAdapter, model_validator

from modelzoo.data.images.transforms import (
    Interpolation,
    RandomResizedCrop,
    Transform,
    checked_order,
)
from waferstream.core.config import Config

_TRANSFORMS = TypeAdapter(tuple[Transform, ...])

Scale = tuple[PositiveFloat, PositiveFloat]


class MultiCrop(Config):
    """Large and small crops of an image, and further changes to each."""

    name: Literal["ImageRandomMultiCropTransform"] = "ImageRandomMultiCropTransform"
    global_num_crops: PositiveInt
    local_num_crops: PositiveInt
    global_image_size: PositiveInt
    """Height and width of large crops."""
    local_image_size: PositiveInt
    """Height and width of small crops."""
    global_crops_scale: Scale
    """Least and largest share of the image in a large crop."""
    local_crops_scale: Scale
    """Least and largest share of the image in a small crop."""
    interpolation_type: Interpolation = "bicubic"
    multicrop_transform_list: tuple[dict[str, Any], ...] = Field(min_length=1)
    """Changes to every crop, in order. A list with an entry for each crop, the large ones first,
    states an argument of each."""

    @property
    def num_crops(self) -> int:
        """All crops of an image."""
        return self.global_num_crops + self.local_num_crops

    @model_validator(mode="after")
    def _changes_are_known(self) -> Self:
        for crop in range(self.num_crops):
            checked_order(self.changes(crop))
        return self

    def changes(self, crop: int) -> tuple[Transform, ...]:
        """Return the changes that make a crop, counted from 0, of an image."""
        is_large = crop < self.global_num_crops
        size = self.global_image_size if is_large else self.local_image_size
        cut = RandomResizedCrop(
            name="random_resized_crop",
            size=size,
            scale=self.global_crops_scale if is_large else self.local_crops_scale,
            interpolation=self.interpolation_type,
        )
        own = [self._of_crop(section, crop) for section in self.multicrop_transform_list]
        return (cut, *_TRANSFORMS.validate_python(own))

    def _of_crop(self, section: Mapping[str, Any], crop: int) -> dict[str, Any]:
        """Return the arguments of a change for one crop."""
        return {
            key: value[crop]
            if isinstance(value, list | tuple) and len(value) == self.num_crops
            else value
            for key, value in section.items()
        }
