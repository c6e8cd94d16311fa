"""Functions that a model may call, as OpenAI's clients describe them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from waferstream.serving.formats.calls import Tool

_CONFIG = ConfigDict(extra="forbid", frozen=True)

Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


class Function(BaseModel):
    """A function with the schema of its arguments."""

    model_config = _CONFIG

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(BaseModel):
    """A function as a tool."""

    model_config = _CONFIG

    type: Literal["function"]
    function: Function

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.function.name

    def described(self) -> dict[str, Any]:
        """Return what a chat template reads of it."""
        return self.model_dump(exclude_none=True, exclude={"function": {"strict"}})

    def tool(self) -> Tool:
        """Return what a grammar needs of it; without parameters it has no arguments."""
        parameters = self.function.parameters or {"additionalProperties": False}
        schema = {"type": "object", **parameters}
        return Tool(self.name, schema, is_strict=bool(self.function.strict))


class FunctionName(BaseModel):
    """The name of a function."""

    model_config = _CONFIG

    name: str


class NamedTool(BaseModel):
    """The tool that must be called."""

    model_config = _CONFIG

    type: Literal["function"]
    function: FunctionName


ToolChoice = Literal["none", "auto", "required"] | NamedTool
