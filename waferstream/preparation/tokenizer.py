"""Tokenizers on the disk."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from waferstream.core.errors import ConfigError
from waferstream.core.extras import extra_package

BYTES = "bytes"
_FORMS = (("tokenizer.json",), ("vocab.json", "merges.txt"), ("vocab.txt",))
"""Files of a tokenizer: of any kind, byte-level BPE as of GPT-2, word pieces as of BERT."""

_UNKNOWN = ("[UNK]", "<unk>", "<UNK>", "unk")


class Tokenizer(Protocol):
    """What turns texts into tokens and back."""

    vocabulary: int
    """One more than the largest token."""
    end: int | None
    """Token after a document."""
    unknown: int | None
    """Token of what the tokenizer cannot express."""
    digest: str
    """Digest of all that decides the tokens."""

    def encode(self, texts: Sequence[str], *, is_start: bool = True) -> list[list[int]]:
        """Return the tokens of texts; where one starts a document, with what begins documents."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, special ones included."""


class ByteTokens:
    """A token for each byte of UTF-8; the byte 0, which no text has, ends documents."""

    vocabulary = 256
    end: int | None = 0
    unknown: int | None = None
    digest = BYTES

    def encode(self, texts: Sequence[str], *, is_start: bool = True) -> list[list[int]]:  # noqa: ARG002
        """Return the bytes of texts."""
        return [list(text.encode()) for text in texts]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of bytes."""
        return bytes(tokens).decode(errors="replace")


class FileTokens:
    """Tokens of a tokenizer of the package tokenizers.

    Args:
        tokenizer: It.
        end: The token after a document.
        files: What it was read from.
    """

    def __init__(self, tokenizer: Any, end: int | None, files: Sequence[Path]) -> None:
        self._tokenizer = tokenizer
        self.end = end
        self.vocabulary = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
        numbers = map(tokenizer.token_to_id, _UNKNOWN)
        self.unknown = next((number for number in numbers if number is not None), None)
        self.digest = sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()

    def encode(self, texts: Sequence[str], *, is_start: bool = True) -> list[list[int]]:
        """Return the tokens of texts."""
        found = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=is_start)
        return [each.ids for each in found]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=False))


def open_tokenizer(place: str, end_token: str | None = None) -> Tokenizer:
    """Open the tokenizer of a folder or file.

    Args:
        place: Its path, or ``bytes``.
        end_token: The token after a document, in place of the one that the folder names.

    Raises:
        ConfigError: There is none, or it has no such token.
    """
    if place == BYTES:
        return ByteTokens()
    path = Path(place).expanduser()
    files = _files_of(path)
    tokenizer = _read(files)
    tokenizer.no_truncation()  # of a training, which tokenizer.json may have kept
    tokenizer.no_padding()
    named = end_token or _named_end(files[0].parent)
    end = None if named is None else tokenizer.token_to_id(named)
    if end_token is not None and end is None:
        raise ConfigError(
            "end_token must be a token of the tokenizer",
            code="end-token-unknown",
            where=place,
            value=end_token,
            rule=f"special tokens: {_special_words(tokenizer)}",
        )
    return FileTokens(tokenizer, end, files)


def check_fits(tokenizer: Tokenizer, place: str, vocab_size: int | None) -> None:
    """Refuse a tokenizer that has tokens beyond a model's, or none that ends documents.

    Raises:
        ConfigError: It does not fit.
    """
    if vocab_size is not None and tokenizer.vocabulary > vocab_size:
        raise ConfigError(
            "the tokenizer has tokens that the model has not",
            code="tokenizer-larger-than-model",
            where=place,
            value=f"{tokenizer.vocabulary:,} tokens, vocab_size {vocab_size:,}",
            rule="at most vocab_size tokens",
            remedy="take the tokenizer of the model, or raise its vocab_size",
        )
    if tokenizer.end is None:
        raise ConfigError(
            "the tokenizer names no token that ends a document",
            code="tokenizer-without-end",
            where=place,
            rule="eos_token of tokenizer_config.json or special_tokens_map.json",
            remedy="name one by --end_token, such as '<|endoftext|>'",
        )


def _files_of(path: Path) -> list[Path]:
    """Return the files of a tokenizer; ConfigError if there is none."""
    if path.is_file() and path.suffix in {".json", ".txt"}:
        merges = path.with_name("merges.txt")
        is_pair = path.name == "vocab.json" and merges.is_file()
        return [path, merges] if is_pair else [path]
    for names in _FORMS:
        if all((path / name).is_file() for name in names):
            return [path / name for name in names]
    there = sorted(each.name for each in path.iterdir())[:8] if path.is_dir() else []
    raise ConfigError(
        "there must be a tokenizer",
        code="tokenizer-not-found",
        where=str(path),
        value=f"the folder holds {', '.join(there) or 'nothing'}" if path.is_dir() else None,
        rule=" or ".join(" and ".join(names) for names in _FORMS),
        remedy="AutoTokenizer.from_pretrained(...).save_pretrained(folder) of transformers writes "
        "tokenizer.json, also from tokenizer.model",
    )


def _read(files: Sequence[Path]) -> Any:
    """Read a tokenizer; ConfigError if it is damaged."""
    package = extra_package("tokenizers", "data")
    first, *others = map(str, files)
    if first.endswith(".txt"):
        read = partial(package.BertWordPieceTokenizer, first)
    elif others:
        read = partial(package.ByteLevelBPETokenizer, first, *others)
    else:
        read = partial(package.Tokenizer.from_file, first)
    try:
        found = read()
    except Exception as error:  # the package raises Exception itself
        raise ConfigError(
            "the tokenizer cannot be read",
            code="tokenizer-damaged",
            where=first,
            value=error,
            rule="a file of the package tokenizers",
        ) from error
    return getattr(found, "_tokenizer", found)


def _named_end(folder: Path) -> str | None:
    """Return the token that a folder says to end texts."""
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        path = folder / name
        about = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        token = about.get("eos_token")
        token = token.get("content") if isinstance(token, Mapping) else token
        if token is not None:
            return str(token)
    return None


def _special_words(tokenizer: Any) -> str:
    words = (each.content for each in tokenizer.get_added_tokens_decoder().values() if each.special)
    return ", ".join(list(words)[:8]) or "none"
