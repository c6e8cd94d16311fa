"""The scaling experiment as one page that stands alone.

Style and picture are inside the page; nothing is fetched and no script runs.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from string import Template

from waferstream.reports.host import Host
from waferstream.reports.scaling import Scaling
from waferstream.scaling.report import COLUMNS, rows, title, verdict
from wsc.core.units import format_bytes

_PAGE = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Scaling: $title</title>
<style>
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1f2933; --faint: #5f6b7a; --line: #e3e7ec;
  --yes: #00714f; --no: #b3261e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14181d; --card: #1c2229; --ink: #e6eaef; --faint: #9aa5b1; --line: #2f3842;
    --yes: #4cc79a; --no: #ff8a80;
  }
}
body {
  margin: 0; padding: 3rem 1.5rem; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif;
}
main { max-width: 68rem; margin: 0 auto; }
h1 { margin: 0; font-size: 1.9rem; letter-spacing: -0.015em; line-height: 1.2; }
.subtitle { margin: 0.4rem 0 2rem; color: var(--faint); font-size: 1.1rem; }
.card {
  margin: 0 0 1.5rem; padding: 1.25rem 1.5rem; overflow-x: auto;
  background: var(--card); border: 1px solid var(--line); border-radius: 10px;
}
.yes { border-left: 5px solid var(--yes); }
.no { border-left: 5px solid var(--no); }
.verdict { margin: 0 0 0.4rem; font-weight: 650; }
.yes .verdict { color: var(--yes); }
.no .verdict { color: var(--no); }
code { font: 0.85em/1.6 ui-monospace, "Liberation Mono", monospace; overflow-wrap: anywhere; }
figure.card { background: #ffffff; }
img { display: block; width: 100%; height: auto; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.5rem 0 0.5rem 1rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { padding-left: 0; text-align: left; }
th { color: var(--faint); font-weight: 500; font-size: 0.85rem; white-space: normal; }
tbody tr { border-top: 1px solid var(--line); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.25rem 1.5rem; margin: 0; }
dt { color: var(--faint); }
dd { margin: 0; overflow-wrap: anywhere; }
.note { margin: 1rem 0 0; color: var(--faint); font-size: 0.9rem; }
</style>
</head>
<body>
<main>
<h1>Scaling over $system systems</h1>
<p class="subtitle">$title</p>
<section class="card $answer">
<p class="verdict">$verdict</p>
$hashes
</section>
<figure class="card"><img src="data:image/png;base64,$picture" alt="Left: samples per second
against the number of systems, emulated, measured and ideal. Right: the causes of an emulated
step's time for each number of systems. The numbers stand in the table."></figure>
$comparison
<section class="card">
<table>
<thead>$head</thead>
<tbody>
$body
</tbody>
</table>
<p class="note">Efficiency is the emulated pace over the ideal, which grows in proportion to the
number of systems from the first row on. Emulated systems share the cores that
compute for them, so the measured pace is not meant to grow with their number.</p>
</section>
<section class="card">
<dl>
$facts
</dl>
</section>
</main>
</body>
</html>
""")


@dataclass(frozen=True)
class Comparison:
    """What to know of the comparison with GPU clusters, and its picture as PNG."""

    note: str
    picture: bytes | None = None


def page(
    scaling: Scaling, commit: str | None, picture: bytes, comparison: Comparison | None = None
) -> str:
    """The page as HTML; ``picture`` is a PNG."""
    return _PAGE.substitute(
        title=escape(title(scaling)),
        system=escape(scaling.run.system),
        answer="no" if scaling.weights_sha256 is None else "yes",
        verdict=escape(verdict(scaling)),
        hashes=_hashes(scaling),
        picture=b64encode(picture).decode(),
        comparison="" if comparison is None else _comparison(comparison),
        head=_table_row("th", COLUMNS),
        body="\n".join(_table_row("td", cells) for cells in rows(scaling)),
        facts="\n".join(_facts(scaling, commit)),
    )


def _comparison(comparison: Comparison) -> str:
    note = f'<p class="note">{escape(comparison.note)}</p>'
    if comparison.picture is None:
        return f'<section class="card">{note}</section>'
    return (
        f'<figure class="card"><img src="data:image/png;base64,'
        f'{b64encode(comparison.picture).decode()}" alt="Samples per second of CS systems, '
        f'emulated, and of GPU clusters, modelled, against their number.">{note}</figure>'
    )


def _hashes(scaling: Scaling) -> str:
    """The one digest, or that of each run."""
    if scaling.weights_sha256 is not None:
        return f"<code>{escape(scaling.weights_sha256)}</code>"
    return "<br>\n".join(
        f"<code>{point.num_csx}: {escape(point.weights_sha256)}</code>" for point in scaling.points
    )


def _table_row(cell: str, texts: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{cell}>{escape(text)}</{cell}>' for text in texts)}</tr>"


def _facts(scaling: Scaling, commit: str | None) -> Iterable[str]:
    """What the measured numbers depend on."""
    run, host = scaling.run, scaling.points[0].measured.host
    facts = {
        "Micro-batch": f"{run.micro_batch_size or 'automatic number of'} samples",
        "Host": _host(host),
        "Software": f"WaferStream {run.version}, Python {host.python}, torch {host.torch}",
        "Commit": commit or "not in a git repository",
    }
    return (f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in facts.items())


def _host(host: Host) -> str:
    return f"{host.cpu}, {host.cores} cores, {format_bytes(host.memory_bytes)} of memory"
