"""All fits: the constants of wafers in use follow from the published rows."""

from __future__ import annotations

import pytest

from tests.support.timing.reference_rows import published_rows
from validation.families.registry import FAMILIES
from validation.fit import gpu
from validation.fit.calibration import Fit, calibrate
from validation.fit.registry import FITS
from validation.report.constants import constants

QUICK = [fit for fit in FITS if fit not in gpu.FITS and not fit.family.startswith("training")]


def test_all_fits_belong_to_different_families() -> None:
    """The command line selects a fit by its family."""
    assert len({fit.family for fit in FITS}) == len(FITS)


@pytest.mark.parametrize("fit", QUICK, ids=lambda fit: fit.family)
def test_fits_of_published_rows_give_the_constants_in_use(fit: Fit) -> None:
    """Anybody who repeats a fit on validation/data gets the numbers of the emulator."""
    rows = published_rows(fit.family, FAMILIES, use="calibration")
    for name, value in calibrate(fit, rows).items():
        in_use = [one.value for one in constants() if one.called(name)]
        assert in_use == [pytest.approx(value, rel=1e-3)]
