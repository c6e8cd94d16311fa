"""A number of the emulated machine together with how well it is known and where from.

A number's *status* says how far to trust it:

    published   printed by the vendor or measured and printed by others
    derived     arithmetic on published numbers, given in its source
    fitted      chosen so that the model meets calibration rows (and no other rows)
    assumed     not published anywhere; a plausible value, to be varied when it decides a result

Sources in short: "zhang" is arXiv 2409.00287, "hc" the vendor's Hot Chips talks, "glossary" the
vendor's glossary, "FABRICA" the microbenchmarks of a CS-3 and its simulator (K0078 to K0116);
"T0028", "K0016" and "G0006" are rows of the reference tables of training throughput, kernels and
GPU clusters.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

Status = Literal["published", "derived", "fitted", "assumed"]


def sourced(
    value: Any,
    status: Status,
    source: str,
    *,
    ge: float | None = None,
    le: float | None = None,
) -> Any:
    """A default with its status and source, for a field of a Config."""
    return Field(
        default=value, description=source, json_schema_extra={"status": status}, ge=ge, le=le
    )
