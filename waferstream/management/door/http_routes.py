"""Paths of HTTP, each with the operation that answers it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic.json_schema import models_json_schema

from waferstream.management.model import operations as ask
from waferstream.management.model.operations import OPERATIONS, Operation

REF = "#/components/schemas/{model}"


class Route(NamedTuple):
    """A path, whose names in braces are fields of the operation."""

    method: str
    path: str
    operation: type[Operation[Any]]


ROUTES = (
    Route("GET", "/v1/version", ask.ReadVersion),
    Route("GET", "/v1/workflows", ask.ListWorkflows),
    Route("POST", "/v1/workflows", ask.Submit),
    Route("GET", "/v1/workflows/{name}", ask.ReadWorkflow),
    Route("GET", "/v1/workflows/{name}/explanation", ask.Explain),
    Route("GET", "/v1/workflows/{name}/events", ask.ReadEvents),
    Route("GET", "/v1/workflows/{name}/files", ask.ListFiles),
    Route("POST", "/v1/workflows/{name}/cancel", ask.Cancel),
    Route("POST", "/v1/workflows/{name}/labels", ask.Label),
    Route("POST", "/v1/workflows/{name}/priority", ask.SetPriority),
    Route("POST", "/v1/workflows/{name}/detach", ask.Detach),
    Route("GET", "/v1/cluster", ask.ReadCluster),
    Route("POST", "/v1/nodes/{name}", ask.SetNode),
    Route("POST", "/v1/users/{name}", ask.AddUser),
    Route("DELETE", "/v1/users/{name}", ask.RevokeUser),
    Route("POST", "/v1/sessions", ask.PutSession),
    Route("DELETE", "/v1/sessions/{name}", ask.DeleteSession),
)
"""What people and scripts use; any operation can also be posted to /v1/do/{operation}."""


def result_type(operation: type[Operation[Any]]) -> Any:
    """Return the type of the result of an operation."""
    bases = (base for base in operation.__mro__ if issubclass(base, Operation))
    generic = (base.__pydantic_generic_metadata__["args"] for base in bases)
    return next(args[0] for args in generic if args)


def described(route: Route) -> dict[str, Any]:
    """Return what OpenAPI says of the question of a route."""
    properties = route.operation.model_json_schema(ref_template=REF).get("properties", {})
    in_path = {name for name in properties if f"{{{name}}}" in route.path}
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": properties[name]}
        for name in properties
        if name in in_path
    ]
    if route.method == "GET":
        parameters += [
            {"name": name, "in": "query", "schema": schema}
            for name, schema in properties.items()
            if name not in in_path
        ]
        return {"parameters": parameters}
    left = {name: schema for name, schema in properties.items() if name not in in_path}
    body = {"schema": {"type": "object", "properties": left, "additionalProperties": False}}
    return {"parameters": parameters, "requestBody": {"content": {"application/json": body}}}


def schemas() -> Mapping[str, Any]:
    """Return the schemas that questions refer to, by name."""
    kinds = [(kind, "validation") for kind in OPERATIONS.values()]
    _, found = models_json_schema(kinds, ref_template=REF)  # type: ignore[arg-type]
    definitions: Mapping[str, Any] = found["$defs"]
    return definitions
