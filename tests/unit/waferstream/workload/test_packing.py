"""A report says what padding costs, or would cost."""

from __future__ import annotations

from waferstream.workload.packing import Packing


def test_packed_documents_would_take_more_sequences_alone() -> None:
    packed = Packing(num_sequences=10, num_documents=45, num_tokens=990, length=100)
    assert (packed.share, packed.cost_of_padding) == (0.99, 4.5)
    assert "4.5 times as many, and as many times the time" in packed.report()


def test_padding_takes_its_share_of_the_time() -> None:
    padded = Packing(num_sequences=45, num_documents=45, num_tokens=990, length=100)
    assert (padded.share, padded.cost_of_padding) == (0.22, 1.0)
    assert "Padding takes 78% of the time" in padded.report()


def test_corpus_has_no_padding() -> None:
    corpus = Packing(num_sequences=0, num_documents=3, num_tokens=990, length=0)
    assert corpus.share == 1
    assert corpus.text() == "3 documents, 990 tokens"
