"""The identity of a step: what decides its program."""

import pytest

from scripts.size import ROOT, SHIPPED, imports_of, name_of
from waferstream.host.sources import OWN_PACKAGES
from waferstream.simulation import capture
from waferstream.training.setup import steps


@pytest.mark.parametrize("module", [steps.__name__, capture.__name__])
def test_identity_of_a_step_covers_all_code_that_makes_it(module: str) -> None:
    """Else a program from a cache could be that of other code."""
    paths = [p.relative_to(ROOT) for name in SHIPPED for p in (ROOT / name).rglob("*.py")]
    imports = {name_of(path): imports_of(path, (ROOT / path).read_text()) for path in paths}
    reached, waiting = {module}, [module]
    while waiting:
        new = (imports[waiting.pop()] & imports.keys()) - reached
        reached |= new
        waiting += new
    assert {name.partition(".")[0] for name in reached} | {"modelzoo"} == set(OWN_PACKAGES)
