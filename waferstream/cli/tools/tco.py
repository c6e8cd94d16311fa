"""``waferstream tco``: what a project costs on several machines, and which of them wins when."""

from __future__ import annotations

import argparse
from pathlib import Path

from waferstream.cli.frame.output import prints_json
from waferstream.cli.tools.command import Command, argument
from waferstream.host.files import json_text, replacing
from waferstream.reports.page import render
from waferstream.reports.tco.page import comparison_page
from waferstream.reports.tco.resolution import load_comparison
from waferstream.reports.tco.sensitivity import Study
from waferstream.reports.tco.text import as_json, comparison_text


def _compare(given: argparse.Namespace) -> int:
    """Print a comparison, and write its page where one is asked for."""
    study = Study.of(load_comparison(given.file))
    if given.page is not None:
        with replacing(given.page) as partial:
            partial.write_text(render(comparison_page(study)), encoding="utf-8")
    print(json_text(as_json(study)) if prints_json() else comparison_text(study))
    return 0


COMMANDS = (
    Command(
        "",
        "compare what a project of training costs on several machines: set-up, people, hardware, "
        "energy; with a tornado of what decides, and a verdict",
        _compare,
        (
            argument("file", type=Path, help="project, people, site and machines, as YAML"),
            argument("--page", type=Path, help="file of the page to write, with the tornado drawn"),
        ),
    ),
)
