"""Whether a picture shows what it should."""

from pathlib import Path

from PIL import Image


def shows(path: Path, color: str) -> bool:
    """Whether a PNG has pixels of just this colour."""
    wanted = tuple(bytes.fromhex(color.removeprefix("#")))
    with Image.open(path) as image:
        colors = image.convert("RGB").getcolors(1 << 24)
    return colors is not None and any(found == wanted for _, found in colors)
