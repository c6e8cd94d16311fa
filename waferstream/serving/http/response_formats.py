"""What a chat must be answered with: text, any JSON, or JSON of a schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from waferstream.serving.formats.schemas import LAID_OUT, json_term

_CONFIG = ConfigDict(extra="forbid", frozen=True)


class TextFormat(BaseModel):
    """Any text."""

    model_config = _CONFIG

    type: Literal["text"]

    def term(self) -> str | None:
        """Return the term of a grammar that an answer is, None if it is any text."""
        return None


class JsonFormat(BaseModel):
    """Any object."""

    model_config = _CONFIG

    type: Literal["json_object"]

    def term(self) -> str | None:
        """Return the term of a grammar that an answer is."""
        return json_term({"type": "object"}, LAID_OUT)


class NamedSchema(BaseModel):
    """A schema with its name, which is nothing to us."""

    model_config = _CONFIG

    name: Annotated[str, Field(min_length=1, max_length=64)]
    description: str | None = None
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    strict: bool | None = None
    """Answers follow the schema in any case."""


class SchemaFormat(BaseModel):
    """JSON of a schema."""

    model_config = _CONFIG

    type: Literal["json_schema"]
    json_schema: NamedSchema

    def term(self) -> str | None:
        """Return the term of a grammar that an answer is."""
        return json_term(self.json_schema.schema_, LAID_OUT)


ResponseFormat = Annotated[TextFormat | JsonFormat | SchemaFormat, Field(discriminator="type")]
