"""Every error code has a page with its text, its remedy and its tests."""

from __future__ import annotations

import pytest

from scripts.error_pages import ErrorCode, error_codes, error_pages


@pytest.fixture(scope="module")
def codes() -> dict[str, ErrorCode]:
    return error_codes()


def test_page_says_what_the_error_says(codes: dict[str, ErrorCode]) -> None:
    page = codes["two-loops"].page("two-loops")
    assert page.startswith("# two-loops\n\nRaised as `ConfigError`.\n")
    assert "two executor loops run at the same time\n" in page
    assert "remedy: end the first loop before the second begins\n" in page
    assert "test_data_executor.py::test_two_loops_at_a_time_are_refused`" in page


def test_page_says_what_a_server_answers(codes: dict[str, ErrorCode]) -> None:
    """Also for a class that is defined elsewhere; codes of reports have no status."""
    assert "A server answers 504 `DEADLINE_EXCEEDED`." in codes["role-stalled"].page("role-stalled")
    assert codes["bits-disputed"].answers() == "500 `DATA_LOSS` or 500 `INTERNAL`"
    assert codes["shape-not-stated"].answers() == ""


def test_values_of_a_text_are_expressions_in_braces(codes: dict[str, ErrorCode]) -> None:
    page = codes["model-exceeds-host"].page("model-exceeds-host")
    assert "training needs at least {format_bytes(needs.total)} of memory on one host" in page


def test_code_that_is_put_together_is_known_from_its_tests(codes: dict[str, ErrorCode]) -> None:
    assert codes["clipped-twice"].raised == []
    assert codes["clipped-twice"].kinds == {"ApplianceCompilationError"}
    assert codes["clipped-twice"].tests != []


def test_codes_that_only_tests_make_up_have_no_page(codes: dict[str, ErrorCode]) -> None:
    assert "unbuildable" not in codes
    assert len(codes) > 500


def test_index_leads_to_every_page() -> None:
    pages = error_pages()
    index = pages.pop("errors/index.md")
    assert all(f"]({name.removeprefix('errors/')})" in index for name in pages)
