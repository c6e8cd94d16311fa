"""Grammars over tokens: what may come, where it ends, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.serving.batcher import Batcher
from appliance.serving.limits import Limits
from tests.support.errors import raises
from tests.support.models.hugging_face_folder import make_tokenizer
from waferstream.core.errors import ConfigError
from waferstream.core.serving import AnswerEnded, AnswerFailed, Event, Request, Sampling, TokenDrawn
from waferstream.serving.formats.schemas import LAID_OUT, ON_A_LINE, json_term
from waferstream.serving.models.grammars import Grammars
from waferstream.serving.models.text import ByteText, Text
from waferstream.serving.models.tokenizer import TokenizedText


def tokenized() -> TokenizedText:
    tokenizer = make_tokenizer()
    return TokenizedText(tokenizer, None, {}, frozenset({tokenizer.token_to_id("<e>")}))


TEXTS: dict[str, Text] = {"bytes": ByteText(), "tokens": tokenized()}
GRAMMARS = {
    name: Grammars(text, text.vocabulary + 3 * (name == "tokens")) for name, text in TEXTS.items()
}
NAMES = st.sampled_from(["a", "b c", "é", '"', "日本"])
SCALARS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"type": "integer", "minimum": -9, "maximum": 120},
        {"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.25},
        {"type": "boolean"},
        {"type": "null"},
        {"type": "string", "maxLength": 4},
        {"type": "string", "pattern": "^[a-c]{1,3}$"},
        {"type": "string", "format": "date"},
        {"enum": ["x", 1, None, "😀"]},
        {"const": {"a": [1]}},
    ]
)


def objects(parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(NAMES, parts, max_size=4).flatmap(
        lambda properties: st.lists(st.sampled_from([*properties, "a"]), unique=True).map(
            lambda required: {
                "type": "object",
                "properties": properties,
                "required": [name for name in required if name in properties],
                "additionalProperties": False,
            }
        )
    )


SCHEMAS = st.recursive(
    SCALARS,
    lambda parts: (
        objects(parts)
        | st.lists(parts, min_size=1, max_size=3).map(lambda some: {"anyOf": some})
        | parts.map(lambda part: {"type": "array", "items": part, "maxItems": 2})
        | st.just({"$ref": "#/$defs/x"})
    ),
    max_leaves=5,
).flatmap(lambda schema: SCALARS.map(lambda part: {**schema, "$defs": {"x": part}}))


def answer(grammars: Grammars, text: Text, request: Request, seed: int) -> list[Event]:
    """The answer of a model whose scores are random."""
    limits = Limits(context=3000, cache_tokens=3000)
    batcher = Batcher(limits, make_guide=grammars.guide)
    batcher.submit(request)
    rng = np.random.default_rng(seed)
    vocabulary = text.vocabulary + 3 * (text is TEXTS["tokens"])
    events: list[Event] = []
    while not batcher.is_idle:
        rows = sum(part.num_scores for part in batcher.plan())
        events += batcher.take(rng.normal(size=(rows, vocabulary)).astype(np.float32) * 3)
    return events


def text_of(text: Text, events: Sequence[Event]) -> str:
    decoder = text.decoder()
    tokens = [event.token for event in events if isinstance(event, TokenDrawn)]
    return "".join(map(decoder.feed, tokens)) + decoder.end()


@pytest.mark.parametrize("kind", TEXTS)
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(schema=SCHEMAS, seed=st.integers(0, 2**31))
def test_answer_follows_its_schema(kind: str, schema: dict[str, Any], seed: int) -> None:
    """Greedy and drawn; it ends by itself, as soon as it is whole."""
    text, sampling = TEXTS[kind], Sampling(seed, temperature=seed % 3)
    grammar = f"start: {json_term(schema, ON_A_LINE if seed % 2 else LAID_OUT)}"
    request = Request("a", (1, 2), 2000, sampling, text.ends, grammar=grammar)
    events = answer(GRAMMARS[kind], text, request, seed)
    assert events[-1] == AnswerEnded("a", "stop")
    found = json.loads(text_of(text, events))
    jsonschema.validate(found, schema)


def test_answer_that_its_limit_cuts_says_so() -> None:
    text = TEXTS["bytes"]
    grammar = f"start: {json_term({'type': 'string', 'minLength': 50}, LAID_OUT)}"
    request = Request("a", (1,), 20, Sampling(1), grammar=grammar)
    assert answer(GRAMMARS["bytes"], text, request, 0)[-1] == AnswerEnded("a", "length")


def test_guide_that_breaks_ends_its_answer_alone() -> None:
    """Others go on."""

    class Broken:
        is_complete = False

        def allowed(self) -> np.ndarray:
            raise ConfigError("broken", code="grammar-broken")

        def take(self, token: int) -> None: ...

    batcher = Batcher(Limits(32, 64), make_guide=lambda _: Broken())
    batcher.submit(Request("a", (1,), 5, Sampling(1), grammar=""))
    batcher.submit(Request("b", (1,), 5, Sampling(1)))
    events: list[Event] = []
    while not batcher.is_idle:
        rows = sum(part.num_scores for part in batcher.plan())
        events += batcher.take(np.zeros((rows, 4), np.float32))
    assert [event.request for event in events if isinstance(event, AnswerFailed)] == ["a"]
    assert AnswerEnded("b", "length") in events


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "enum": [1]},
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
        {"allOf": [{"type": "string"}, {"type": "number"}]},
        {"$ref": "#/x"},
        {"$ref": "http://127.0.0.1:1/schema"},
        {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"type": "nothing"},
        {"type": "string", "pattern": "("},
        {"not": {}},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "object", "properties": {f"a{number}": {} for number in range(3000)}},
    ],
)
def test_schema_that_nothing_fits_is_refused(schema: dict[str, Any]) -> None:
    for grammars in GRAMMARS.values():
        with raises(ConfigError, "format-not-possible") as caught:
            grammars.guide(f"start: {json_term(schema, LAID_OUT)}")
        assert "x-guidance" not in str(caught.value)  # the grammar that we have made of it


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    "schema",
    [nested(70), {"maxItems": 10**7}, {"enum": ["x" * 1000] * 300}],
)
def test_schema_that_takes_long_to_compile_is_refused(schema: dict[str, Any]) -> None:
    with raises(ConfigError, "schema-too-large"):
        json_term(schema, LAID_OUT)


def test_tokens_have_their_bytes() -> None:
    text = TEXTS["tokens"]
    tokens = text.encode("def é 日本")
    found = b"".join(GRAMMARS["tokens"].bytes_of(token) for token in tokens)
    assert found.decode() == "def é 日本"
    assert GRAMMARS["bytes"].bytes_of(0xC3) == b"\xc3"
