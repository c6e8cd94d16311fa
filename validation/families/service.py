"""Predict what users of the vendor's inference service saw."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from validation.families.prediction import Family
from validation.rows.decoders import check_one_request, decoder_name
from validation.rows.row import CannotPredict, Row
from validation.rows.units import in_token_unit, in_unit
from waferstream.core.units import seconds
from waferstream.machine.regions.published import DECODERS, DRAFTS, Draft
from waferstream.machine.regions.service import (
    FIRST_SERVICE,
    SERVED_CONTEXT,
    SERVICE,
    Service,
    ServiceSpec,
)

GENERATIONS = FIRST_SERVICE, SERVICE

_FIRST_MONTHS = ("2024-08", "2024-09")
"""When the first generation of the software served."""


def _token_s(row: Row) -> float:
    """Return the seconds per token and user."""
    if row.kind == "training":
        check_one_request(row)
    context = row.integer("seq_len") if row.kind == "training" else None
    return _service(row).token_s(context or SERVED_CONTEXT)


def _service(row: Row) -> Service:
    """Return the service of a row's model at its time; the first generation had no drafts."""
    name, index = decoder_name(row), _generation(row)
    return _served_by(name, GENERATIONS[index], DRAFTS.get(name) if index else None)


@cache
def _served_by(name: str, spec: ServiceSpec, draft: Draft | None) -> Service:
    return Service(DECODERS[name], SERVED_CONTEXT, spec, draft)


def _generation(row: Row) -> int:
    """Return the index of the generation of the software that a row measured.

    Rows of wse_training.csv have no date: one that names no draft is of the first generation if
    that served the model.
    """
    if row.kind == "service":
        return 0 if row.text("measured_on").startswith(_FIRST_MONTHS) else 1
    is_llama = decoder_name(row).startswith("llama-3.1")
    return 0 if is_llama and "speculative" not in row.text("workload") else 1


def _predict_speed(row: Row) -> float:
    """Predict output tokens per second and user."""
    return in_token_unit(row, 1 / _token_s(row))


def _predict_request(row: Row) -> float:
    """Predict the seconds of a request, whose quantity names its tokens."""
    in_unit(row, "s")
    found = re.search(r"([\d,]+) input and ([\d,]+) output", row.text("quantity"))
    if found is None:
        raise CannotPredict("the row does not give the prompt's length", code="prompt-not-stated")
    prompt, output = (int(number.replace(",", "")) for number in found.groups())
    service = _service(row)
    first = service.pipeline.prompt(prompt)
    return seconds((first + service.tokens(prompt, output - 1)).total_ps)


def _refuse(_: Row) -> float:
    raise CannotPredict(
        "a number that the model takes, or a bound: nothing predicts it", code="nothing-predicts-it"
    )


def _about(*words: str) -> Callable[[Row], bool]:
    """Return a test whether a row's quantity begins with one of ``words``."""
    return lambda row: row.kind == "service" and row.text("quantity").startswith(words)


def _served(row: Row) -> bool:
    """Return whether a row of wse_training.csv is of the service."""
    is_inference = row.kind == "training" and row.text("phase") == "inference"
    return is_inference and "inference service" in row.text("system")


FAMILIES: tuple[Family, ...] = (
    Family("inference service", _about("decode speed"), _predict_speed),
    Family("inference service", _served, _predict_speed),
    Family("served requests", _about("request", "time to first token"), _predict_request),
    Family("numbers of the service", lambda row: row.kind == "service", _refuse),
)
