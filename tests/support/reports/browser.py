"""Headless Chromium without a network, for pages that reports are."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import matplotlib.image as mpimg
import numpy as np
import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
NEEDS_BROWSER = pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")
MARKS = [pytest.mark.nightly, NEEDS_BROWSER]
"""Marks of a module whose tests need the browser."""


def browse(tmp_path: Path, *flags: str) -> str:
    """Run the browser; return what it prints."""
    assert BROWSER is not None
    command = (
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={tmp_path / 'profile'}", *flags,
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def brightness_by_scheme(tmp_path: Path, page: str) -> tuple[float, float]:
    """Median brightness of a page for readers who prefer light, and for those who prefer dark."""
    light, dark = (_brightness(tmp_path, page, scheme) for scheme in (1, 0))
    return light, dark


def _brightness(tmp_path: Path, page: str, scheme: int) -> float:
    picture = tmp_path / f"{scheme}.png"
    browse(
        tmp_path, f"--blink-settings=preferredColorScheme={scheme}",
        "--window-size=1280,900", f"--screenshot={picture}", page,
    )  # fmt: skip
    return float(np.median(mpimg.imread(picture)[..., :3]))
