"""Numbers of systems as they are typed, ``1,2,4-8``, ``1-192``, ``1-2048:x2``, and as requested."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from waferstream.core.errors import ConfigError
from waferstream.management.model.inventory import MOST_SYSTEMS
from waferstream.reports.economics import PriceSpec

_NUMBER = r"\d{1,9}"  # int() refuses thousands of digits
_PART = re.compile(
    f"(?P<first>{_NUMBER})(?:-(?P<last>{_NUMBER})(?::x(?P<factor>{_NUMBER}))?)?", re.ASCII
)


@dataclass(frozen=True)
class SimulationRequest:
    """The arguments of ``--simulate``."""

    sweep: tuple[int, ...] | None = None
    """Numbers of systems; None for powers of two up to ``--num_csx``."""
    machines: tuple[str, ...] = ()
    """CS systems and named machines to compare; empty for that of cluster.yaml."""
    weak: bool = False
    """Whether every system gets the batch of the params file."""
    sparsity_step: int | None = None
    """The step whose sparse weights count; None for the mean over the steps of the run."""
    token_budget: float | None = None
    measures_zeros: bool = False
    """Whether the model runs on a few samples, to count zeros among its activations."""
    allows_overflow: bool = False
    """Whether a micro-batch that does not fit is predicted as if it did."""
    explains: bool = False
    """Whether the size of the micro-batch is explained."""
    prices: PriceSpec = field(default_factory=PriceSpec)


PLAIN_REQUEST = SimulationRequest()


def parse_sweep(text: str, where: str) -> tuple[int, ...]:
    """Parse numbers of systems; return each once, in ascending order.

    Args:
        text: Parts separated by commas: a number, a range with both ends (``4-8``), or a range
            with a factor (``1-64:x2``), which multiplies from its first number on.
        where: The flag, for the error message.

    Raises:
        ConfigError: A part cannot be parsed or is out of range.
    """
    parts = (number for part in text.split(",") for number in _parse_part(part, text, where))
    return tuple(sorted(set(parts)))


def counts_of(request: SimulationRequest, num_csx: int) -> tuple[int, ...]:
    """Return the numbers of systems to simulate, ``--num_csx`` always among them.

    Raises:
        ConfigError: ``num_csx`` is more than MOST_SYSTEMS.
    """
    if num_csx > MOST_SYSTEMS:
        raise ConfigError(
            "a simulated cluster must be one that could exist",
            code="out-of-range",
            where="--num_csx",
            value=num_csx,
            rule=f"at most {MOST_SYSTEMS:,} systems",
        )
    if request.sweep is None:
        return powers_up_to(num_csx)
    return tuple(sorted({*request.sweep, num_csx}))


def powers_up_to(num_csx: int) -> tuple[int, ...]:
    """Return 1, 2, 4, ... and ``num_csx``."""
    return (*(1 << power for power in range((num_csx - 1).bit_length())), num_csx)


def _parse_part(part: str, text: str, where: str) -> Iterator[int]:
    found = _PART.fullmatch(part.strip())
    if found is None:
        raise _invalid(part, text, where)
    first, last = int(found["first"]), int(found["last"] or found["first"])
    factor = int(found["factor"] or 0)
    if not 1 <= first <= last <= MOST_SYSTEMS or (found["factor"] and factor < 2):
        raise _invalid(part, text, where)
    while first <= last:
        yield first
        first = first * factor if factor else first + 1


def _invalid(part: str, text: str, where: str) -> ConfigError:
    return ConfigError(
        "the numbers of systems cannot be parsed",
        code="sweep-invalid",
        where=where,
        value=f"{part.strip() or 'nothing'} in {text!r}",
        rule=f"whole numbers from 1 to {MOST_SYSTEMS:,}, as in 1,2,4-8 or 1-192 or 1-2048:x2",
    )
