"""The page of aten ops that run, and of what to write instead of others."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any, NamedTuple

import torch
import yaml

from waferstream.compiler.ops import KIND_OF, REMEDIES, kind_of_overload

_HEAD = """\
# Ops

Look here whether an op of your model runs, and
[what to write instead](#refused-and-what-to-write-instead) where it does not;
`run.py --params FILE --validate_only` checks a whole model. PyTorch reduces modules and functions
to the aten ops below (`nn.Linear` to `addmm`, `nn.Conv2d` to `convolution`), in the version that
`pyproject.toml` pins. The page is made from the tables of the compiler when the site is built.

- **kind**: the cost function by which the op takes emulated time
  (`waferstream/machine/kernels/op_costs.py`).
  A view costs nothing.
- **differentiates**: whether autograd has a formula that the project supports. Backward ops have
  none (no second derivatives), nor have ops whose result does not change smoothly with an operand.

An op shares the row of its in-place variant. A step may overwrite values that it made, not
buffers, inputs or parameters. An op that is not listed is refused when the step is compiled, with
the module and the line that it comes from. So are ops whose result has a shape that depends on
values. Random ops draw by seed, step, micro-batch and position.
"""

_NO_GRADIENTS = frozenset({"name", "dispatch", "output_differentiability", "result", "result0"})
_SPARSE = frozenset(
    {"ccol_indices", "col_indices", "crow_indices", "indices", "row_indices", "values"}
)


class Row(NamedTuple):
    """One op that runs."""

    name: str
    kind: str
    differentiates: bool


def rows() -> list[Row]:
    """Return all ops with a kernel, by name; an op and its in-place variant share a row."""
    kinds: dict[str, str] = {}
    formulas: set[str] = set()
    differentiable = _differentiable()
    for overload in sorted(_overloads(), key=_is_in_place):
        kind = kind_of_overload(overload)
        if kind is None or not _is_listed(overload):
            continue
        name = overload.overloadpacket.__name__.removesuffix("_")
        if _is_in_place(overload) and name in kinds:  # whose formula may be of zeros, as of gt_
            continue
        kinds.setdefault(name, kind)
        has_formula = _is_composite(overload) or overload.name() in differentiable
        if has_formula and "backward" not in name:
            formulas.add(name)
    return [Row(name, kind, name in formulas) for name, kind in sorted(kinds.items())]


def _overloads() -> Iterator[Any]:
    """Yield the overloads of all aten ops, without those that write to an ``out`` argument."""
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if namespace != "aten" or not hasattr(torch.ops.aten, packet):
            continue
        found = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
        if found is not None and not any(a.is_out for a in found._schema.arguments):
            yield found


def _is_in_place(overload: Any) -> bool:
    return str(overload.overloadpacket.__name__).endswith("_")


def _is_listed(overload: Any) -> bool:
    """Return whether a reader may meet an op: by its own name in a graph, or named by the project.

    Ops that torch always reduces to others, and views of sparse and nested tensors, are left out.
    """
    name = overload.overloadpacket.__name__
    if name in KIND_OF:
        return True
    return not _is_composite(overload) and not name.startswith("_") and name not in _SPARSE


def _is_composite(overload: Any) -> bool:
    """Return whether torch reduces an op to others before autograd."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return bool(has_kernel(overload.name(), "CompositeImplicitAutograd"))


def _differentiable() -> set[str]:
    """Return the ops, with overload, for which torch's own list has a formula of a gradient."""
    source = files("torchgen").joinpath("packaged/autograd/derivatives.yaml")
    found = set()
    for entry in yaml.safe_load(source.read_text(encoding="utf-8")):
        formulas = entry.get("dispatch", {}).get("Default", entry)
        gradients = [text for key, text in formulas.items() if key not in _NO_GRADIENTS]
        if any("not_differentiable" not in text and "not_impl" not in text for text in gradients):
            found.add("aten::" + entry["name"].partition("(")[0])
    return found


def page() -> str:
    """Return the page as Markdown."""
    lines = [
        _HEAD,
        "| op | kind | differentiates |",
        "|---|---|---|",
    ]
    for row in rows():
        differentiates = "yes" if row.differentiates else "-"
        lines.append(f"| `{row.name}` | {row.kind} | {differentiates} |")
    lines += ["", "## Refused, and what to write instead", "", "| op | instead |", "|---|---|"]
    lines += [f"| `{name}` | {remedy} |" for name, remedy in sorted(REMEDIES.items())]
    return "\n".join(lines) + "\n"
