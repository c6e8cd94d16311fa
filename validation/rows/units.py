"""Check units of published values, unify their spelling, and convert predictions to them."""

from __future__ import annotations

import re

from validation.rows.row import CannotPredict, Row


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


QUANTITIES = _words(
    "ps ns us ms s min minutes h hours days GPU-hours node-hours core-hours"
    " cycle cycles clocks elements elem words wavelets hops turns instructions"
    " bytes B KB MB GB TB PB bits cells points atoms parameters PEs cores"
    " samples sequences tokens steps iterations batches epochs images requests"
    " FLOP FLOPs MFLOP GFLOP TFLOP PFLOP EFLOP flop flops ops W mW kW MW Wh kWh J mJ kJ MJ Hz"
    " speedup percent ratio fraction rows USD"
)
"""Quantities: the first word of a unit, or words joined by ``/``; ratios are x or %.

Quantities that are counted in large numbers may have a prefix: ``Gcells``, ``TFLOPs``, ``pJ``."""

PER = QUANTITIES | _words(
    "hop turn wavelet element elem word iteration step MAC FMAC FMA op task row column layer block"
    " direction PE core link port wafer CSX system box node GPU gpu device request user token"
    " sample sequence image batch epoch matvec call message cell point bit byte hour day"
)
"""Words allowed after a ``/``."""

SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "minutes": 60.0}
"""Seconds of each unit of time to which a prediction is converted."""

_PREFIXED = re.compile(
    r"[KMGT]iB|[pnumkKMGTPE](?:s|B|b|bytes?|bits?|FLOPs?|flops?|ops|OPS?|cells?|points?|updates?"
    r"|tokens|samples|words|parameters|W|Wh|J|Hz)"
)
_ADJECTIVES = r"(?:(?:output|input|prompt|generated|time|total)\s+)?"
_SHAPE = re.compile(rf"{_ADJECTIVES}(?P<measure>\S+?),?(?:\s.*)?")
_REMARK = re.compile(r"\s*\(.*\)")
_SPELLINGS = {
    re.compile(r"(?<![\w-])sec(?:ond)?s?\b"): "s",
    re.compile(r"[\u00b5\u03bc](?=s\b)"): "u",
    re.compile(r"(?<=FL)OPS\b"): "OP/s",
    re.compile(r"\btok(?=/)"): "tokens",
    re.compile(r"\bit(?:er)?(?=/)"): "iterations",
}
_DEVICES = frozenset({"GPU", "gpu", "CSX", "system", "device"})
_CAPITALISED = re.compile(r"\b[A-Z][a-z]{2,}\b")


def canonical(unit: str) -> str:
    """Return the one spelling of a unit.

    Remarks in brackets, which often quote results, are removed; seconds become s, FLOPS become
    FLOP/s, and capitals are kept only where they distinguish units.
    """
    text = _CAPITALISED.sub(_lower_if_known, _REMARK.sub("", unit).strip())
    for spelling, word in _SPELLINGS.items():
        text = spelling.sub(word, text)
    return text


def unknown_word(unit: str) -> str | None:
    """Return the unknown word of a unit, or None; words after a blank only describe."""
    shape = _SHAPE.fullmatch(unit)
    if shape is None:
        return unit
    quantity, *per = shape["measure"].split("/")
    if shape["measure"] not in ("x", "%") and not _is_quantity(quantity):
        return quantity
    return next((word for word in per if word not in PER and not _is_quantity(word)), None)


def measure(unit: str) -> str:
    """Return a unit without descriptive words and with ``/`` for ``per``.

    ``cycles per matvec`` becomes cycles/matvec, ``output tokens/s/user`` tokens/s/user.
    """
    shape = _SHAPE.fullmatch(re.sub(r"\s+per\s+", "/", unit))
    return shape["measure"] if shape else unit


def in_unit(row: Row, *units: str) -> str:
    """Return the row's unit; CannotPredict if it is none of ``units``."""
    if row.unit not in units:
        raise CannotPredict(
            f"predictions are in {' or '.join(units)}, not in {row.unit}", code="unit-not-predicted"
        )
    return row.unit


def in_token_unit(row: Row, tokens_per_s: float) -> float:
    """Convert the token rate of one request to the row's unit, a rate or a time per token."""
    quantity, *per = measure(row.unit).split("/")
    if quantity == "tokens" and per in (["s"], ["s", "user"], ["s", "request"]):
        return tokens_per_s
    if quantity in SECONDS and per == ["token"]:
        return 1 / tokens_per_s / SECONDS[quantity]
    raise CannotPredict(
        f"predictions are in tokens per second, not in {row.unit}", code="unit-not-predicted"
    )


def in_training_unit(
    row: Row, samples_per_s: float, batch_size: int, seq_len: int, devices: int
) -> float:
    """Convert a training throughput to the row's unit.

    Units are samples, tokens or steps per second, of all devices or of each, or a time per step.
    """
    quantity, *per = measure(row.unit).split("/")
    rates = dict.fromkeys(("samples", "sequences", "images"), samples_per_s)
    rates["tokens"] = samples_per_s * seq_len
    rates["steps"] = rates["iterations"] = samples_per_s / batch_size
    if quantity in rates and per[:1] == ["s"] and set(per[1:]) <= _DEVICES:
        return rates[quantity] / (devices if per[1:] else 1)
    if quantity in SECONDS and per in (["step"], ["iteration"]):
        return batch_size / samples_per_s / SECONDS[quantity]
    raise CannotPredict(f"training is not predicted in {row.unit}", code="unit-not-predicted")


def _lower_if_known(word: re.Match[str]) -> str:
    lower = word[0].lower()
    return lower if lower in PER else word[0]


def _is_quantity(word: str) -> bool:
    return word in QUANTITIES or _PREFIXED.fullmatch(word) is not None
