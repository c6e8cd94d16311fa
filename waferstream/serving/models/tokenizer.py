"""Tokenizers of Hugging Face's folders."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from waferstream.core.errors import ConfigError
from waferstream.core.extras import extra_package
from waferstream.serving.models.templates import ChatTemplate
from waferstream.serving.models.text import Chat, Message
from waferstream.workload.hugging_face import read_json

_SPLIT = "�"
"""What a tokenizer gives for a character of which tokens are missing."""


class TokenizedText:
    """Text by a tokenizer.

    Args:
        tokenizer: One of the package tokenizers.
        template: What writes chats, if anything.
        words: What the template calls ``eos_token`` and the like.
        ends: Tokens that end an answer.
    """

    def __init__(
        self, tokenizer: Any, template: str | None, words: Mapping[str, str], ends: frozenset[int]
    ) -> None:
        self._tokenizer = tokenizer
        self._template = None if template is None else ChatTemplate(template, words)
        self._added: Mapping[int, Any] = tokenizer.get_added_tokens_decoder()
        self.ends = ends

    @classmethod
    def of_folder(cls, folder: Path) -> TokenizedText:
        """Return the text of a folder of Hugging Face.

        Raises:
            ConfigError: The folder has no tokenizer, or it cannot be read.
        """
        size = _optional_json(folder / "config.json").get("vocab_size")
        tokenizer = _within(_read_tokenizer(folder / "tokenizer.json"), size)
        about = _optional_json(folder / "tokenizer_config.json")
        named = {**_optional_json(folder / "special_tokens_map.json"), **about}
        words = {
            key: word
            for key, value in named.items()
            if key.endswith("_token") and isinstance(word := _text_of(value), str)
        }
        ends = _ends_of(folder, tokenizer, words.get("eos_token"))
        return cls(tokenizer, _template_of(folder, about), words, ends)

    @property
    def vocabulary(self) -> int:
        """One more than the largest token, of which a model may have more."""
        return int(max(self._tokenizer.get_vocab(with_added_tokens=True).values())) + 1

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a text to continue, after the token that begins texts, if any."""
        return tuple(self._tokenizer.encode(text).ids)

    @property
    def template(self) -> str | None:
        """What writes chats, if anything."""
        return None if self._template is None else self._template.source

    def encode_chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Chat:
        """Return a chat as the template of the model writes it.

        Raises:
            ConfigError: The folder has no template, or it refuses the messages.
        """
        if self._template is None:
            raise ConfigError(
                "a chat must have a template",
                code="no-chat-template",
                rule="tokenizer_config.json or chat_template.jinja has one",
                remedy="ask /v1/completions, which continues a text",
            )
        text = self._template.render(messages, tools, options or {})
        return Chat(text, tuple(self._tokenizer.encode(text, add_special_tokens=False).ids))

    def token_of(self, word: str) -> int | None:
        """Return the token that a word is, None if it is written by others."""
        token: int | None = self._tokenizer.token_to_id(word)
        return token if token in self._added else None

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, special ones included."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=False))

    def guided(self, vocabulary: int) -> Any:
        """Return the tokens as llguidance has them."""
        end = min(self.ends, default=vocabulary)
        return extra_package("llguidance", "serve").LLTokenizer(
            self._tokenizer.to_str(), n_vocab=max(vocabulary, end + 1), eos_token=end
        )

    def decoder(self, prompt: Sequence[int] = (), words: Collection[str] = ()) -> TokenDecoder:
        """Return what turns the tokens that follow a prompt into text."""
        shown = {
            token: added.content
            for token, added in self._added.items()
            if added.special and added.content in words
        }
        return TokenDecoder(self._tokenizer, prompt, shown)


class TokenDecoder:
    """Text from tokens that follow a prompt.

    The newest tokens are decoded together with those of the piece before, as some tokenizers leave
    out a space at the beginning, and characters may be split.

    Args:
        tokenizer: One of the package tokenizers.
        prompt: Tokens before.
        words: Special tokens whose text is shown, too.
    """

    def __init__(
        self, tokenizer: Any, prompt: Sequence[int], words: Mapping[int, str] | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self._words = words or {}
        self._tokens = list(prompt)
        self._before = 0  # where the piece before begins
        self._shown = len(self._tokens)  # tokens whose text was returned

    def feed(self, token: int) -> str:
        """Return the text that a token completes."""
        self._tokens.append(token)
        new = self._new_text() + self._words.get(token, "")
        if not new or new.endswith(_SPLIT):
            return ""
        self._before, self._shown = self._shown, len(self._tokens)
        return new

    def end(self) -> str:
        """Return what was held back."""
        return self._new_text()

    def _new_text(self) -> str:
        """Return the text of the tokens that were not shown."""
        before = self._tokenizer.decode(self._tokens[self._before : self._shown])
        whole: str = self._tokenizer.decode(self._tokens[self._before :])
        return whole[len(before) :]


def _ends_of(folder: Path, tokenizer: Any, end: str | None) -> frozenset[int]:
    """Return the tokens that end texts by any of the files of a folder."""
    found: set[int] = set()
    for name in ("config.json", "generation_config.json"):
        value = _optional_json(folder / name).get("eos_token_id")
        ends = value if isinstance(value, list) else [value]
        found |= {end for end in ends if end is not None}
    token = None if end is None else tokenizer.token_to_id(end)
    return frozenset(found if token is None else found | {token})


def _read_tokenizer(path: Path) -> Any:
    package = extra_package("tokenizers", "serve")
    try:
        tokenizer = package.Tokenizer.from_file(str(path))
        tokenizer.no_truncation()  # as transformers, which saves what a training has set
        tokenizer.no_padding()
        return tokenizer
    except Exception as error:  # the package raises Exception itself
        raise ConfigError(
            "a folder to serve must have a tokenizer",
            code="tokenizer-not-readable",
            where=str(path),
            value=error,
            rule="tokenizer.json, as transformers writes it",
            remedy="AutoTokenizer.from_pretrained(...).save_pretrained(folder)",
        ) from error


def _within(tokenizer: Any, size: int | None) -> Any:
    """Return a tokenizer without the added tokens that a model of so many has not.

    A model of text may share the tokenizer of one that also reads images.
    """
    if size is None or tokenizer.get_vocab_size(with_added_tokens=True) <= size:
        return tokenizer
    about = json.loads(tokenizer.to_str())
    about["added_tokens"] = [each for each in about["added_tokens"] if each["id"] < size]
    return extra_package("tokenizers", "serve").Tokenizer.from_str(json.dumps(about))


def _template_of(folder: Path, about: Mapping[str, Any]) -> str | None:
    """Return the chat template of a folder, None if it has none."""
    beside = folder / "chat_template.jinja"
    if beside.is_file():
        return beside.read_text(encoding="utf-8")
    template = about.get("chat_template")
    return template if isinstance(template, str) else None


def _optional_json(path: Path) -> Mapping[str, Any]:
    return read_json(path) if path.is_file() else {}


def _text_of(token: Any) -> str | None:
    """Return the text of a special token, which may be stated with its properties."""
    return token.get("content") if isinstance(token, Mapping) else token
