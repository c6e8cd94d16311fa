"""What torch's inductor makes of a graph of fusible ops: a function in Python, and loops in C++.

Of inductor only the passes and the code generators are used. The function allocates, calls products
and other ops of torch, and the loops; it is read here as a syntax tree. Loops run on one thread, in
an order that the shapes decide, and nothing is tuned by measuring.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from unittest import mock

import torch
from torch import fx
from torch._inductor import config
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from waferstream.compiler.fusion.regions import NotFusibleError
from waferstream.core.program.fused import PRODUCTS

SETTINGS = {
    "cpp.threads": 1,
    "cpp.dynamic_threads": False,
    "cpp.vec_isa_ok": True,  # found without compiling
    "cpp_wrapper": False,
    "fx_graph_cache": False,
    "fx_graph_remote_cache": False,
    "max_autotune": False,
    "fallback_random": True,
    "freezing": False,
    "compile_threads": 1,
    "size_asserts": True,
    "alignment_asserts": False,
    "worker_start_method": "subprocess",
}
"""Settings of inductor that decide what it writes."""

_GLOBALS = frozenset(
    {"torch", "extern_kernels", "empty_strided_cpu", "reinterpret_tensor", "assert_size_stride"}
    | {"inf", "nan", "device"}
)
_PREFIX = "#include <torch/csrc/inductor/cpp_prefix.h>"
_ENTRY = re.compile(r'extern "C"\s+void\s+kernel\(')


@dataclass(frozen=True)
class Loop:
    """A function in C++ on tensors of given types."""

    name: str
    source: str
    num_tensors: int


@dataclass(frozen=True)
class Region:
    """A function of tensors in Python, which calls loops; it returns a tuple."""

    function: ast.FunctionDef
    loops: tuple[Loop, ...]


def region_of(module: fx.GraphModule, inputs: Sequence[torch.Tensor], name: str) -> Region:
    """Return the function ``name`` that computes a graph on tensors like ``inputs``.

    Strides of results are those of the graph.

    Raises:
        NotFusibleError: Inductor writes something that cannot be called here.
    """
    with FakeTensorMode(allow_non_fake_inputs=True) as fakes:
        examples = [fakes.from_tensor(tensor) for tensor in inputs]
        graph = make_fx(module, decomposition_table=select_decomp_table())(*examples)
    (output,) = graph.graph.find_nodes(op="output")
    output.meta["user_visible_output_idxs"] = list(range(len(output.args[0])))
    with (
        config.patch(SETTINGS),
        mock.patch.object(AsyncCompile, "cpp_pybinding", return_value=None),
    ):
        compiled = compile_fx_inner(graph, examples, is_inference=True)
    source = getattr(compiled, "source_code", None)
    if not source:
        raise NotFusibleError("inductor computes nothing")
    return _read(ast.parse(source), name)


def _read(tree: ast.Module, name: str) -> Region:
    """Return the parts of a module that inductor has written."""
    loops: dict[str, Loop] = {}
    function: ast.FunctionDef | None = None
    for node in tree.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(loop)],
                value=ast.Call(
                    func=ast.Attribute(attr="cpp_pybinding"),
                    args=[types, ast.Constant(str(source))],
                ),
            ):
                loops[loop] = _loop(f"{name}_{loop}", ast.literal_eval(types), source)
            case ast.ClassDef(name="Runner", body=methods):
                (function,) = (
                    m for m in methods if isinstance(m, ast.FunctionDef) and m.name == "call"
                )
            case _:
                pass
    if function is None:
        raise NotFusibleError("inductor has written no function")
    match function.body:
        case [ast.Assign(targets=[ast.Tuple(elts=names)]), ast.Expr(), *body]:
            pass
        case _:
            raise NotFusibleError("inductor has written a function of another form")
    arguments = [ast.arg(each.id) for each in names if isinstance(each, ast.Name)]
    function.name, function.body = name, body
    function.args = ast.arguments([], arguments, None, [], [], None, [])
    _check(function, set(loops))
    for each in ast.walk(function):
        if isinstance(each, ast.Name) and each.id in loops:
            each.id = loops[each.id].name
    return Region(function, tuple(loops.values()))


def _loop(name: str, types: Sequence[str], source: str) -> Loop:
    if not all(each.endswith("*") for each in types):
        raise NotFusibleError(f"a loop takes other arguments than tensors: {', '.join(types)}")
    body, count = _ENTRY.subn(f'extern "C" void {name}(', source.replace(_PREFIX, ""))
    if count != 1:
        raise NotFusibleError("inductor has written a loop of another form")
    return Loop(name, body, len(types))


def _check(function: ast.FunctionDef, loops: set[str]) -> None:
    """Refuse a function that needs more than a text of fused kernels has."""
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    own = {argument.arg for argument in function.args.args} | {
        node.id for node in names if isinstance(node.ctx, ast.Store)
    }
    if unknown := {node.id for node in names} - own - loops - _GLOBALS:
        raise NotFusibleError(f"inductor calls {', '.join(sorted(unknown))}")
    products = {
        node.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
        if isinstance(node.value, ast.Name) and node.value.id == "extern_kernels"
    }
    if unknown := products - set(PRODUCTS):
        raise NotFusibleError(f"inductor calls extern_kernels.{', '.join(sorted(unknown))}")
