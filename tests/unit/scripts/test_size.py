"""The size of the product: the budget that is read, and what is counted."""

from pathlib import Path

from scripts.size import budget, circles, imports_of, lonely

IMPORTS = {
    "a.b.one": {"a.c.two", "a.c"},
    "a.c.two": {"a.b.three"},
    "a.b.three": set[str](),
    "a.b.four": {"a.b.three"},
    "a.b.five": {"a.b.four"},
    "z.six": {"a.b.one"},
}


def test_folders_that_import_one_another_are_a_circle() -> None:
    assert circles(IMPORTS, "a") == [{"b", "c"}]
    assert circles(IMPORTS, "z") == []


def test_a_module_is_lonely_with_one_importer_beside_it() -> None:
    assert list(lonely(IMPORTS)) == ["a.b.four"]


def test_imports_for_types_alone_do_not_run() -> None:
    text = "import x\nif TYPE_CHECKING:\n    import y\nelse:\n    from z import w\n"
    assert imports_of(Path("file.py"), text) == {"x", "z", "z.w"}


def test_budget_is_the_table_of_its_section() -> None:
    page = (
        "| n | 1 |\n## Size\n\n| | most |\n| --- | --- |\n| lines | 1,200 |\n\n## Next\n| m | 3 |\n"
    )
    assert budget(page) == {"lines": 1200}
