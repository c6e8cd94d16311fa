"""Numbers of the emulated machine with their status and source, and presets of such numbers.

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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from pydantic import Field

from waferstream.core.config import Config, validate

Status = Literal["published", "derived", "fitted", "assumed"]

Spec = TypeVar("Spec", bound=Config)


class Sourced(NamedTuple):
    """A value of a preset with its status and source."""

    value: Any
    status: Status
    source: str


@dataclass(frozen=True)
class Preset(Generic[Spec]):
    """A named product or release: an instance of a neutral spec whose numbers have sources."""

    title: str
    spec: Spec
    values: Mapping[str, Any]
    """Arguments of the spec: ``Sourced`` numbers, and plain values such as names and switches."""
    stated: Mapping[str, Sourced]
    """Numbers that the preset states itself, without those of the preset it is a variant of."""


def preset(
    kind: type[Spec], title: str, *, variant_of: Preset[Spec] | None = None, **values: Any
) -> Preset[Spec]:
    """Build a preset of ``kind``.

    Args:
        kind: A configuration class whose fields have no default of any product.
        title: One line that describes the product, without a full stop.
        variant_of: Another preset of the same product line, whose values hold unless given.
        **values: One value for each field; numbers as ``Sourced``.

    Raises:
        ConfigError: A field has no value, a value breaks a rule, or a name is not a field.
    """
    every = {**(variant_of.values if variant_of else {}), **values}
    plain = {
        name: given.value if isinstance(given, Sourced) else given for name, given in every.items()
    }
    stated = {name: given for name, given in values.items() if isinstance(given, Sourced)}
    return Preset(title, validate(kind, plain, title), every, stated)


def override(spec: Spec, /, **values: Any) -> Spec:
    """Return a copy of a spec with single values changed, checked as a spec of its own.

    Args:
        spec: for instance that of a preset.
        **values: new values by field; a mapping for a section changes single values of it.

    Raises:
        ConfigError: A value breaks a rule, or a name is not a field.
    """
    return validate(type(spec), merged(spec, values), type(spec).__name__)


def merged(spec: Config, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a spec with single ones changed, in its sections too, unchecked."""
    found: dict[str, Any] = dict(spec)
    for name, value in values.items():
        section = found.get(name)
        if isinstance(section, Config) and isinstance(value, Mapping):
            found[name] = merged(section, value)
        else:
            found[name] = value
    return found


def sourced(
    value: Any,
    status: Status,
    source: str,
    *,
    ge: float | None = None,
    le: float | None = None,
) -> Any:
    """Return a default with its status and source, for a field of a Config."""
    return Field(
        default=value, description=source, json_schema_extra={"status": status}, ge=ge, le=le
    )
