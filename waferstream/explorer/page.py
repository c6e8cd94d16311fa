"""The page as one file: style, scripts and answers in it; it loads nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any, NamedTuple

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template

from waferstream.core.errors import WaferStreamError
from waferstream.core.units import format_count
from waferstream.explorer.answer import Answer
from waferstream.explorer.explorer import Explorer
from waferstream.explorer.knobs import SYSTEMS, Knob
from waferstream.version import VERSION

SCRIPTS = ("numbers.js", "drawing.js", "curve.js", "machine.js", "gpus.js", "page.js")
"""In one script, in this order."""


class _Page(NamedTuple):
    """What the template is given."""

    title: str
    subtitle: str
    footer: str
    data: Mapping[str, Any]
    scripts: tuple[str, ...] = SCRIPTS


def page_of(
    explorer: Explorer, answers: Mapping[str, Answer | WaferStreamError], *, is_export: bool
) -> str:
    """Return the page as HTML.

    Args:
        explorer: What is explored.
        answers: Answers by their keys (``key_of``), or why there is none; that at rest is there.
        is_export: Whether it has no others to ask for.
    """
    at_rest = answers[""]
    assert isinstance(at_rest, Answer), "files without an answer have no page"
    machine = explorer.cluster.machine
    knobs = [_shown(knob, is_coarse=is_export) for knob in explorer.knobs]
    title = f"{explorer.label} on {machine.name or machine.system.name}"
    page = _Page(
        title=title,
        subtitle=f"{format_count(at_rest.parameters)} parameters, {explorer.files}",
        footer=f"WaferStream {VERSION}. Predictions of an emulator; docs/fidelity.md says how far "
        "to trust them.",
        data={
            "label": explorer.label,
            "title": title,
            "knobs": knobs,
            "is_export": is_export,
            "answers": {key: as_json(answer) for key, answer in answers.items()},
        },
    )
    return _template().render(page=page)


def key_of(settings: Mapping[str, float]) -> str:
    """Return the key of an answer: the moved knobs in their order, but the systems."""
    return "&".join(f"{name}={value}" for name, value in settings.items() if name != SYSTEMS)


def as_json(answer: Answer | WaferStreamError) -> dict[str, Any]:
    """Return an answer as plain data with as many digits as are shown, or an error's fields."""
    if isinstance(answer, WaferStreamError):
        return {"error": answer.fields()}
    rounded: dict[str, Any] = _rounded(asdict(answer))
    return rounded


def _rounded(data: Any) -> Any:
    if isinstance(data, float):
        return float(f"{data:.5g}")
    if isinstance(data, dict):
        return {key: _rounded(value) for key, value in data.items()}
    return [_rounded(each) for each in data] if isinstance(data, list | tuple) else data


def _shown(knob: Knob, *, is_coarse: bool) -> dict[str, Any]:
    """Return a knob for the page; any number of systems is in every answer."""
    stops = knob.coarse if is_coarse and knob.name != SYSTEMS else knob.stops
    return {**asdict(knob), "stops": stops}


@cache
def _template() -> Template:
    environment = Environment(
        loader=ChoiceLoader(
            [
                PackageLoader("waferstream.explorer", "pages"),
                PackageLoader("waferstream.reports", "."),
            ]
        ),
        autoescape=lambda name: bool(name and name.endswith(".jinja")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("explorer.html.jinja")
