"""Units that reference rows may hold: which words are known, and what is left without remarks."""

from __future__ import annotations

import re


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
"""What a unit may measure, as its first word or words joined by ``/``; or a ratio, x or %.

Quantities that are counted in large numbers may have a prefix: ``Gcells``, ``TFLOPs``, ``pJ``."""

PER = QUANTITIES | _words(
    "hop turn wavelet element elem word iteration step MAC FMAC FMA op task row column layer block"
    " direction PE core link port wafer CSX system box node GPU gpu device request user token"
    " sample sequence image batch epoch matvec call message cell point bit byte hour day"
)
"""What may stand after a ``/``."""

SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "minutes": 60.0}
"""Of the units of time that a prediction is converted to."""

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
_CAPITALISED = re.compile(r"\b[A-Z][a-z]{2,}\b")


def canonical(unit: str) -> str:
    """The unit itself: remarks in brackets, which often quote results, are cut off; seconds are s,
    FLOPS are FLOP/s, and capitals count only where they tell units apart."""
    text = _CAPITALISED.sub(_lower_if_known, _REMARK.sub("", unit).strip())
    for spelling, word in _SPELLINGS.items():
        text = spelling.sub(word, text)
    return text


def unknown_word(unit: str) -> str | None:
    """The word of a unit that is not known, or None; words after a blank only describe."""
    shape = _SHAPE.fullmatch(unit)
    if shape is None:
        return unit
    quantity, *per = shape["measure"].split("/")
    if shape["measure"] not in ("x", "%") and not _is_quantity(quantity):
        return quantity
    return next((word for word in per if word not in PER and not _is_quantity(word)), None)


def measure(unit: str) -> str:
    """What is measured, ``per`` as a stroke, without the words that only describe it.

    ``cycles per matvec`` is cycles/matvec, ``output tokens/s/user`` is tokens/s/user.
    """
    shape = _SHAPE.fullmatch(re.sub(r"\s+per\s+", "/", unit))
    return shape["measure"] if shape else unit


def _lower_if_known(word: re.Match[str]) -> str:
    lower = word[0].lower()
    return lower if lower in PER else word[0]


def _is_quantity(word: str) -> bool:
    return word in QUANTITIES or _PREFIXED.fullmatch(word) is not None
