"""Print how large the product is, and what a newcomer has to know; compare with the budget.

    python -m scripts.size      # the exit status is 1 if something is above its budget

The budget is the table "Size" of CONTRIBUTING.md, and only a line there may raise it. Counted are
files and lines of each package, modules that one other module of their folder imports alone, and
circles among the folders of a package, by imports that run.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
SHIPPED = (
    *("appliance", "csnode", "cstorch", "memoryx", "modelzoo", "swarmx", "waferstream"),
    "waferstream_compat",
)
LAB = ("benchmarks", "examples", "scripts", "validation")
NOT_ON_THE_WAY = (
    *("modelzoo", "waferstream/baselines", "waferstream_compat", "csnode/fabric"),
    *("csnode/inference", "appliance/serving", "waferstream/machine/regions"),
    *("waferstream/reports/service", "waferstream/serving", "waferstream/simulator/service_"),
    "waferstream/explorer",
    "waferstream/management",
)
"""Parts of the product that no step of a training passes."""

_ROW = re.compile(r"^\| (?P<name>[^|]+?) \| (?P<most>[\d,]+) \|$", re.MULTILINE)


def main() -> int:
    """Print each figure beside its budget; return the exit status."""
    most = budget((ROOT / "CONTRIBUTING.md").read_text())
    found = figures()
    for name in most.keys() - found.keys():
        raise SystemExit(f"CONTRIBUTING.md has a budget for {name!r}, which is not counted")
    for name, value in found.items():
        over = value > most.get(name, value)
        limit = f"of {most[name]:7,}" if name in most else ""
        print(f"{name:44} {value:8,} {limit} {'OVER' if over else ''}".rstrip())
    return int(any(value > most.get(name, value) for name, value in found.items()))


def budget(page: str) -> dict[str, int]:
    """Return the most of each figure that the table of a page allows."""
    _, _, section = page.partition("## Size\n")
    table, _, _ = section.partition("\n## ")
    return {m["name"]: int(m["most"].replace(",", "")) for m in _ROW.finditer(table)}


def figures() -> dict[str, int]:
    """Return every figure by its name."""
    files = {path: path.read_text() for path in _files((*SHIPPED, *LAB))}
    lines = {path: text.count("\n") for path, text in files.items()}
    found: dict[str, int] = {}
    for package in (*SHIPPED, *LAB):
        own = [path for path in files if path.parts[0] == package]
        found[f"files of {package}"] = len(own)
        found[f"lines of {package}"] = sum(lines[path] for path in own)
    known = [
        path
        for path in files
        if path.parts[0] in SHIPPED and not str(path).startswith(NOT_ON_THE_WAY)
    ]
    imports = {name_of(path): imports_of(path, text) for path, text in files.items()}
    return {
        **found,
        "files of the product": sum(path.parts[0] in SHIPPED for path in files),
        "files of the lab": sum(path.parts[0] in LAB for path in files),
        "lines a newcomer must know": sum(lines[path] for path in known),
        "modules with one importer, in their folder": sum(1 for _ in lonely(imports)),
        **{f"circles in {name}": len(circles(imports, name)) for name in SHIPPED},
    }


def lonely(imports: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield the modules that one module imports alone, which stands in the same folder."""
    importers: dict[str, set[str]] = defaultdict(set)
    for module, imported in imports.items():
        for each in (imported & imports.keys()) - {module}:
            importers[each].add(module)
    for module, users in importers.items():
        if len(users) == 1 and module.rpartition(".")[0] == next(iter(users)).rpartition(".")[0]:
            yield module


def circles(imports: Mapping[str, set[str]], package: str) -> list[set[str]]:
    """Return the groups of folders and modules right below a package that import one another."""
    arrows: dict[str, set[str]] = defaultdict(set)
    for module, imported in imports.items():
        for each in imported & imports.keys():
            ends = _below(module, package), _below(each, package)
            if all(ends) and ends[0] != ends[1]:
                arrows[ends[0]].add(ends[1])
    reached = {room: _reached(arrows, room) for room in list(arrows)}
    found: list[set[str]] = []
    for room, others in reached.items():
        circle = {other for other in others if room in reached.get(other, ())}
        if circle and circle not in found:
            found.append(circle)
    return found


def _reached(arrows: Mapping[str, set[str]], room: str) -> set[str]:
    seen: set[str] = set()
    waiting = [room]
    while waiting:
        new = arrows.get(waiting.pop(), set()) - seen
        seen |= new
        waiting += new
    return seen


def _below(module: str, package: str) -> str:
    """Return the part of a name right below a package, empty for the package and for others."""
    head, _, rest = module.partition(".")
    return rest.partition(".")[0] if head == package else ""


def _files(packages: tuple[str, ...]) -> Iterator[Path]:
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT)


def name_of(path: Path) -> str:
    """Return the name of the module in a file."""
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def imports_of(path: Path, text: str) -> set[str]:
    """Return all modules, and names in modules, that a file imports when it runs."""
    found: Counter[str] = Counter()
    waiting: list[ast.AST] = [ast.parse(text, str(path))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            found.update([node.module, *(f"{node.module}.{alias.name}" for alias in node.names)])
        waiting += ast.iter_child_nodes(node)
    return set(found)


if __name__ == "__main__":
    sys.exit(main())
