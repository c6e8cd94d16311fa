"""Constants of GPU stacks: the fits repeat the values in use."""

from __future__ import annotations

import pytest

from tests.support.timing.reference_rows import published_rows
from validation.families.registry import FAMILIES
from validation.fit.calibration import Fit, calibrate
from validation.fit.gpu import FITS
from validation.report.constants import constants


@pytest.mark.parametrize("fit", FITS, ids=lambda fit: fit.family)
def test_fits_of_published_rows_give_the_constants_in_use(fit: Fit) -> None:
    """Anybody who repeats a fit on validation/data gets the numbers of the emulator."""
    known = {f"{one.holder}.{one.name}": one for one in constants()}
    rows = published_rows(fit.family, FAMILIES, use="calibration")
    for name, value in calibrate(fit, rows).items():
        assert known[name].status == "fitted"
        assert known[name].value == pytest.approx(value, rel=0.01)
