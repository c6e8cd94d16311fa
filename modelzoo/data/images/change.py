"""The base class of changes to images before they become numbers."""

from __future__ import annotations

from abc import abstractmethod

from PIL import Image

from modelzoo.data.order import Draw
from waferstream.core.config import Config


class ImageTransform(Config):
    """A change to pixels of 8 bits."""

    @abstractmethod
    def apply(self, image: Image.Image, draw: Draw) -> Image.Image:
        """Return the changed image."""
