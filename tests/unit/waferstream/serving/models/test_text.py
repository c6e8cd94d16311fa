"""Text and tokens: characters that are split, texts that end an answer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from waferstream.serving.models.text import ByteText, StopFilter


@given(st.text())
def test_text_comes_back(text: str) -> None:
    decoder = ByteText().decoder()
    pieces = [decoder.feed(token) for token in ByteText().encode(text)]
    assert "".join(pieces) + decoder.end() == text


def test_split_character_comes_once_it_is_complete() -> None:
    decoder = ByteText().decoder()
    assert [decoder.feed(byte) for byte in "é".encode()] == ["", "é"]


def test_bytes_that_are_no_text_are_replaced() -> None:
    decoder = ByteText().decoder()
    assert decoder.feed(0xFF) == "�"
    assert decoder.feed(0xC3) == ""
    assert decoder.end() == "�"


@given(
    st.lists(st.text("ab", max_size=4), max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=3)),
)
def test_answer_ends_before_the_first_stop(pieces: list[str], stops: list[str]) -> None:
    """However the text is cut into pieces."""
    held = StopFilter(stops)
    shown = "".join(held.feed(piece) for piece in pieces)
    if not held.has_stopped:
        shown += held.end()
    whole = "".join(pieces)
    places = [place for stop in stops if stop and (place := whole.find(stop)) >= 0]
    if held.has_stopped:
        assert whole.startswith(shown)
        assert any(whole[len(shown) :].startswith(stop) for stop in stops if stop)
    else:
        assert shown == whole
        assert not places
