"""What is made of texts: the keys of ``waferstream data preprocess``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from waferstream.core.config import Config
from waferstream.core.units import MIB

Layout = Literal["packed", "joined", "padded", "corpus"]


class Recipe(Config):
    """Sources, tokenizer and layout of a dataset."""

    sources: Annotated[tuple[str, ...], Field(min_length=1)]
    """Files, folders or globs of text, of lines of JSON (``.jsonl``), or of tables (``.parquet``).

    ``.gz`` may follow. A file of text is one document, a line or a row is one.
    """

    output_dir: Path
    """Folder of the files that are written; those of an interrupted command are kept."""

    tokenizer: str = "bytes"
    """Folder or file of a tokenizer on this disk; ``bytes`` has a token for each byte of UTF-8."""

    end_token: str | None = None
    """Token after each document; by default the one that the tokenizer's folder names."""

    vocab_size: PositiveInt | None = None
    """Vocabulary of the model that is to read the tokens: a larger tokenizer is refused."""

    layout: Layout = "packed"
    """How documents lie in sequences.

    ``packed``: whole documents side by side, which do not attend to each other (``use_vsl``);
    ``joined``: one long text, cut at any place; ``padded``: one document in each sequence;
    ``corpus``: a run of tokens, which is cut when it is read.
    """

    max_sequence_length: PositiveInt = 2048
    """Tokens of a sequence; a longer document is cut into several."""

    text_key: str = "text"
    """Key of a line, or column of a table, with the text."""

    prompt_key: str | None = None
    """Key or column with what comes before the text; its tokens have no loss."""

    most_unknown: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Share of unknown tokens from which on the tokenizer does not fit the text."""

    bytes_per_file: PositiveInt = 64 * MIB
    """Bytes of text for each file that is written, and for each process at a time."""

    processes: NonNegativeInt = 0
    """Processes side by side; 0: as many as there are processors. Files do not depend on it."""

    @model_validator(mode="after")
    def _has_masks_for_prompts(self) -> Self:
        if self.prompt_key is not None and self.layout == "corpus":
            raise ValueError("a corpus has no loss mask, so prompt_key needs another layout")
        return self
