"""Names for debugging."""

from __future__ import annotations

from torch import nn

import cstorch
from cstorch.names import current_name_scope


def test_name_scopes_nest() -> None:
    """Also when they are entered and left by hand."""
    inner = cstorch.name_scope("inner")
    with cstorch.name_scope("outer"):
        inner.__enter__()
        assert current_name_scope() == "outer.inner"
        inner.__exit__(None, None, None)
        assert current_name_scope() == "outer"
    assert current_name_scope() == ""


def test_debug_names_are_paths_of_modules() -> None:
    """A scope precedes them; a module without a noted path has the name of its class."""
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    assert cstorch.get_debug_name(model[1]) == "ReLU"
    cstorch.add_debug_name(model, "net")
    assert [cstorch.get_debug_name(part) for part in model] == ["net.0", "net.1"]
    cstorch.set_debug_scope("train")
    assert cstorch.get_debug_name(model) == "train.net"
    cstorch.set_debug_scope(None)
    assert cstorch.get_debug_name(model) == "net"
