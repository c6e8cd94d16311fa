"""The identity of a step: what decides its program."""

from scripts.size import ROOT, SHIPPED, imports_of, name_of
from waferstream.training.setup import steps


def test_identity_of_a_step_covers_all_code_that_it_imports() -> None:
    """Else a program from the cache could be that of other code."""
    paths = [p.relative_to(ROOT) for name in SHIPPED for p in (ROOT / name).rglob("*.py")]
    imports = {name_of(path): imports_of(path, (ROOT / path).read_text()) for path in paths}
    reached, waiting = {steps.__name__}, [steps.__name__]
    while waiting:
        new = (imports[waiting.pop()] & imports.keys()) - reached
        reached |= new
        waiting += new
    assert {module.partition(".")[0] for module in reached} | {"modelzoo"} == set(steps.SOURCES)
