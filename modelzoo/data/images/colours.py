"""Changes to images, and those of colours and sharpness, as torchvision makes them with Pillow."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Literal, Self

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from pydantic import Field, NonNegativeFloat, NonNegativeInt, model_validator

from modelzoo.data.order import Draw
from waferstream.core.config import Config

Recolour = Callable[[Image.Image, float], Image.Image]

_HUES = 255
"""Steps of a full turn of the hue (torchvision, adjust_hue)."""


class ImageTransform(Config):
    """A change to pixels of 8 bits."""

    @abstractmethod
    def apply(self, image: Image.Image, draw: Draw) -> Image.Image:
        """Return the changed image."""


class ColorJitter(ImageTransform):
    """Change brightness, contrast, saturation and hue by random factors, in random order.

    A factor lies within 1 - x and 1 + x, at least 0, for the stated x; the hue turns by at most its
    share of a circle.
    """

    name: Literal["color_jitter_with_prob"]
    brightness: NonNegativeFloat = 0.0
    contrast: NonNegativeFloat = 0.0
    saturation: NonNegativeFloat = 0.0
    hue: float = Field(default=0.0, ge=0, le=0.5)
    p: float = Field(default=0.0, ge=0, le=1)
    """Share of images that change; 0 is all of them, as at the vendor."""

    def apply(self, image: Image.Image, draw: Draw) -> Image.Image:
        if self.p and draw() >= self.p:
            return image
        for recolour, low, high in _in_random_order(self._changes(), draw):
            image = recolour(image, low + (high - low) * draw())
        return image

    def _changes(self) -> list[tuple[Recolour, float, float]]:
        """Return each change with the bounds of its factor."""
        kinds = (
            (_brightened, self.brightness),
            (_contrasted, self.contrast),
            (_saturated, self.saturation),
        )
        factors = [(kind, max(0.0, 1 - most), 1 + most) for kind, most in kinds if most]
        return [*factors, *([(_turned, -self.hue, self.hue)] if self.hue else [])]


class RandomGrayScale(ImageTransform):
    """Take the colours out of an image at random."""

    name: Literal["random_gray_scale", "random_grayscale"]
    p: float = Field(default=0.1, ge=0, le=1)
    """Share of images that become grey."""

    def apply(self, image: Image.Image, draw: Draw) -> Image.Image:
        return image.convert("L").convert("RGB") if draw() < self.p else image


class RandomGaussianBlur(ImageTransform):
    """Blur an image at random, by a random radius."""

    name: Literal["random_gaussian_blur_random_radius"]
    p: float = Field(default=0.5, ge=0, le=1)
    """Share of images that are blurred."""
    radius_min: NonNegativeFloat = 1.0
    radius_max: NonNegativeFloat = 2.0

    @model_validator(mode="after")
    def _range_is_ordered(self) -> Self:
        if self.radius_min > self.radius_max:
            raise ValueError("radius_min must be at most radius_max")
        return self

    def apply(self, image: Image.Image, draw: Draw) -> Image.Image:
        if draw() >= self.p:
            return image
        radius = self.radius_min + (self.radius_max - self.radius_min) * draw()
        return image.filter(ImageFilter.GaussianBlur(radius))


class RandomSolarize(ImageTransform):
    """Invert the bright pixels of an image at random."""

    name: Literal["random_solarize"]
    threshold: NonNegativeInt
    """Least value of a pixel, of 255, that is inverted."""
    p: float = Field(default=0.5, ge=0, le=1)
    """Share of images that change."""

    def apply(self, image: Image.Image, draw: Draw) -> Image.Image:
        return ImageOps.solarize(image, self.threshold) if draw() < self.p else image


def _in_random_order(
    changes: list[tuple[Recolour, float, float]], draw: Draw
) -> list[tuple[Recolour, float, float]]:
    keys = [draw() for _ in changes]
    return [changes[place] for place in sorted(range(len(changes)), key=keys.__getitem__)]


def _brightened(image: Image.Image, factor: float) -> Image.Image:
    return ImageEnhance.Brightness(image).enhance(factor)


def _contrasted(image: Image.Image, factor: float) -> Image.Image:
    return ImageEnhance.Contrast(image).enhance(factor)


def _saturated(image: Image.Image, factor: float) -> Image.Image:
    return ImageEnhance.Color(image).enhance(factor)


def _turned(image: Image.Image, share: float) -> Image.Image:
    """Return an image whose hue is turned by a share of a circle."""
    hue, saturation, value = image.convert("HSV").split()
    turned = np.array(hue) + np.int32(share * _HUES).astype(np.uint8)  # wraps at 256
    return Image.merge("HSV", (Image.fromarray(turned), saturation, value)).convert("RGB")
