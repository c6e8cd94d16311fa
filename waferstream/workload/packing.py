"""How full the sequences of a dataset are."""

from __future__ import annotations

from dataclasses import dataclass

from waferstream.core.units import counted


@dataclass(frozen=True)
class Packing:
    """Documents in sequences of one length."""

    num_sequences: int
    num_documents: int
    num_tokens: int
    """Places that hold a document's token, and no padding."""
    length: int
    """Places of a sequence; 0 of a corpus, which is cut when it is read."""

    @property
    def share(self) -> float:
        """Share of the places that hold a token; 1 of a corpus."""
        places = self.num_sequences * self.length
        return self.num_tokens / places if places else 1.0

    @property
    def cost_of_padding(self) -> float:
        """How many times as many sequences there would be with one document in each."""
        return self.num_documents / max(self.num_sequences, 1)

    def text(self) -> str:
        """Return one line about documents and sequences."""
        documents = counted(self.num_documents, "document")
        if not self.length:
            return f"{documents}, {counted(self.num_tokens, 'token')}"
        line = (
            f"{documents} in {counted(self.num_sequences, 'sequence')} of {self.length:,}: "
            f"{self.share:.1%} of the places hold tokens"
        )
        if self.cost_of_padding <= 1:
            return line
        return f"{line}; one document in each would take {self.cost_of_padding:.1f} times as many"

    def report(self) -> str:
        """Return what rates of tokens count, and what padding costs or would cost."""
        wasted = 1 - self.share
        line = f"Tokens are those of documents: {self.text()}"
        if self.cost_of_padding > 1:
            return f"{line}, and as many times the time and energy."
        if wasted < 0.05:
            return f"{line}."
        return (
            f"{line}. Padding takes {wasted:.0%} of the time: `waferstream data preprocess` packs "
            "documents side by side."
        )
