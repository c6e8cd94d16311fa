"""Tokenizers and chat templates of Hugging Face's folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from waferstream.core.errors import ConfigError
from waferstream.serving.text import Message
from waferstream.workload.hugging_face import read_json

_SPLIT = "�"
"""What a tokenizer gives for a character of which tokens are missing."""

_CONTEXT_TOKENS = 8
"""Tokens before the newest ones that are decoded with them: a character has at most four bytes."""


class TokenizedText:
    """Text by the ``tokenizer.json`` and the chat template of a folder.

    Raises:
        ConfigError: The folder has no tokenizer, or it cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self._tokenizer = _read_tokenizer(folder / "tokenizer.json")
        about = _optional_json(folder / "tokenizer_config.json")
        self._special = {
            key: _text_of(about.get(key)) for key in ("bos_token", "eos_token", "pad_token")
        }
        self._template = _template_of(folder, about)
        self.ends = self._ends_of(folder)

    @property
    def vocabulary(self) -> int:
        """Number of tokens, of which a model may have more."""
        size: int = self._tokenizer.get_vocab_size()
        return size

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a text to continue, after the token that begins texts, if any."""
        return tuple(self._tokenizer.encode(text).ids)

    def encode_chat(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Return the tokens of a chat, as the template of the model writes it.

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
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        try:
            template = environment.from_string(self._template)
            text = template.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=True,
                **{key: value for key, value in self._special.items() if value is not None},
            )
        except (TemplateError, ValueError, TypeError, OverflowError) as error:
            raise ConfigError(
                "the template of the model refuses the chat",
                code="chat-not-rendered",
                value=error,
                remedy="send other roles or another order of messages",
            ) from error
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decoder(self) -> TokenDecoder:
        """Return what turns the tokens of one answer into text."""
        return TokenDecoder(self._tokenizer)

    def _ends_of(self, folder: Path) -> frozenset[int]:
        """Return the tokens that end texts by any of the files of a folder."""
        found: set[int] = set()
        for name in ("config.json", "generation_config.json"):
            value = _optional_json(folder / name).get("eos_token_id")
            found |= {each for each in (value if isinstance(value, list) else [value]) if each}
        if (end := self._special["eos_token"]) is not None:
            found |= {token for token in (self._tokenizer.token_to_id(end),) if token is not None}
        return frozenset(found)


class TokenDecoder:
    """Text from tokens."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self._num_shown = 0  # tokens whose text was returned

    def feed(self, token: int) -> str:
        """Return the text that a token completes."""
        self._tokens.append(token)
        new = self._new_text()
        if not new or new.endswith(_SPLIT):
            return ""
        self._num_shown = len(self._tokens)
        return new

    def end(self) -> str:
        """Return what was held back."""
        return self._new_text()

    def _new_text(self) -> str:
        """Return the text of the tokens that were not shown, after those before them."""
        start = max(0, self._num_shown - _CONTEXT_TOKENS)
        before = self._tokenizer.decode(self._tokens[start : self._num_shown])
        whole: str = self._tokenizer.decode(self._tokens[start:])
        return whole[len(before) :]


def _read_tokenizer(path: Path) -> Any:
    try:
        module = import_module("tokenizers")
    except ModuleNotFoundError as error:
        raise ConfigError(
            "the package tokenizers must be installed",
            code="tokenizers-missing",
            remedy="pip install 'waferstream[serve]'",
        ) from error
    try:
        return module.Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises Exception itself
        raise ConfigError(
            "a folder to serve must have a tokenizer",
            code="tokenizer-not-readable",
            where=str(path),
            value=error,
            rule="tokenizer.json, as transformers writes it",
            remedy="AutoTokenizer.from_pretrained(...).save_pretrained(folder)",
        ) from error


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


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
