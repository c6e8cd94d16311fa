"""JSON schemas of params.yaml and cluster.yaml, for editors and for the reference of all keys.

A schema states what each key may be. Rules between keys are checked when a file is read; a file
that a run accepts in the Trainer layout is valid here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel

from appliance.spec import ClusterSpec
from waferstream.config.params import Params
from waferstream.config.schema.generator import ConfigSchema
from waferstream.config.sections.backend import DeviceType
from waferstream.config.sections.callbacks import REMOVABLE_CALLBACKS
from waferstream.config.sections.optimizer import OPTIMIZERS
from waferstream.core.config import load_yaml
from waferstream.core.hyper_schedules.base import SCHEDULES, Key, scheduler_name
from waferstream.core.hyper_schedules.build import argument_names
from waferstream.machine.hardware import fabric, inputs, named, wafer
from waferstream.machine.hardware.sourced import Preset, Sourced

Schema = dict[str, Any]
FileKind = Literal["params", "cluster"]
"""A file that has a schema."""

MEANINGS = Path(__file__).with_name("meanings.yaml")
"""Meanings of keys without a docstring, by name."""

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_DEFS = "#/$defs/"
_PRODUCTS = {"CS2": "CS-2", "CS3": "CS-3", "WSE2": "WSE-2", "WSE3": "WSE-3"}
"""Names of presets as users write them."""


def schema_of(kind: FileKind) -> Schema:
    """Return the JSON schema of params.yaml (Trainer layout) or of cluster.yaml."""
    schema = _params_schema() if kind == "params" else _cluster_schema()
    _state_meanings(schema)
    return schema


def _state_meanings(schema: Schema) -> None:
    """Describe the keys that have neither docstring nor source."""
    meanings = load_yaml(MEANINGS)
    for section in _sections(schema):
        for key, entry in section["properties"].items():
            meaning = meanings.get(f"{section.get('title')}.{key}", meanings.get(key))
            if meaning is not None and not {"description", "x-source"} & entry.keys():
                entry["description"] = meaning


def _sections(schema: Any) -> Iterator[Schema]:
    """Yield every mapping with keys that a schema describes."""
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            yield schema
        for each in schema.values():
            yield from _sections(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _sections(each)


def _generated(kind: type[BaseModel]) -> Schema:
    return kind.model_json_schema(schema_generator=ConfigSchema, ref_template=_DEFS + "{model}")


def _ref(name: str) -> Schema:
    return {"$ref": _DEFS + name}


def _cluster_schema() -> Schema:
    schema = _generated(ClusterSpec)
    definitions = schema["$defs"]
    for section in schema["properties"].values():
        _also(section, {"type": "null"})
    _sourced(definitions["WaferSpec"], wafer.PRESETS)
    _sourced(definitions["FabricSpec"], fabric.PRESETS)
    _sourced(definitions["LoaderSpec"], inputs.PRESETS)
    definitions["WaferSpec"]["properties"]["name"] |= {"enum": [*wafer.SYSTEMS], "default": "CS-2"}
    definitions["MachineSpec"]["properties"]["system"]["anyOf"][0]["enum"] = [*wafer.SYSTEMS]
    definitions["MachineSpec"]["properties"]["name"]["anyOf"][0]["enum"] = [*named.PRESETS]
    definitions["Fault"] = {"anyOf": [{"type": "string"}, definitions["Fault"]]}
    return {"$schema": _DRAFT, **schema, "title": "cluster.yaml"}


def _also(entry: Schema, other: Schema) -> None:
    """Let a key take another value, too."""
    first = {key: entry.pop(key) for key in ("$ref", "anyOf", "type") if key in entry}
    entry["anyOf"] = [first, other]


def _sourced(section: Schema, presets: Mapping[str, Preset[Any]]) -> None:
    """State the numbers of presets as defaults; a file changes single ones of them."""
    section.pop("required", None)
    for key, entry in section["properties"].items():
        stated = {
            _PRODUCTS.get(name, name): preset.values[key]
            for name, preset in presets.items()
            if isinstance(preset.values.get(key), Sourced)
        }
        if not stated:
            continue
        first = next(iter(stated.values()))
        sources = {name: f"{each.source} ({each.status})" for name, each in stated.items()}
        entry["x-defaults"] = {name: each.value for name, each in stated.items()}
        if len(set(sources.values())) == 1:
            entry |= {"x-status": first.status, "x-source": first.source}
        else:
            entry["x-source"] = "; ".join(f"{name}: {text}" for name, text in sources.items())


def _params_schema() -> Schema:
    # Importing torch takes seconds, and only the schema of params.yaml needs the models.
    from waferstream.workload.data import DATA_PROCESSORS  # noqa: PLC0415
    from waferstream.workload.models import MODELS  # noqa: PLC0415

    schema = _generated(Params)
    definitions = schema["$defs"]
    definitions["InitConfig"]["properties"]["device"] = {
        "enum": [*get_args(DeviceType)],
        "description": "Short form of backend.backend_type.",
    }
    _also_other_names(definitions)
    _state_schedulers(definitions)
    _state_removals(definitions)
    models = {name: family.config for name, family in MODELS.items()}
    _state_names(definitions, "ModelConfig", "name", models)
    _state_names(definitions, "DataLoaderConfig", "data_processor", DATA_PROCESSORS)
    phases = {
        "type": "array",
        "minItems": 1,
        "items": {
            "type": "object",
            "properties": {"trainer": _ref("TrainerConfig")},
            "required": ["trainer"],
            "additionalProperties": False,
        },
    }
    _also(schema["properties"]["trainer"], phases)
    return {"$schema": _DRAFT, **schema, "title": "params.yaml"}


def _also_other_names(definitions: Schema) -> None:
    """Accept optimizers in lower case, and ``learning_rate`` for ``lr``."""
    for name in OPTIMIZERS:
        entry = definitions[name]
        (body,) = entry["properties"].values()
        (arguments,) = (each for each in body["anyOf"] if "properties" in each)
        arguments["properties"]["learning_rate"] = {
            **arguments["properties"]["lr"],
            "description": "Another name of lr.",
        }
        entry["patternProperties"] = {f"^{name.lower()}$": body}
        del entry["required"]
        entry |= {"minProperties": 1, "maxProperties": 1}


def _state_schedulers(definitions: Schema) -> None:
    """Describe schedulers, of learning rates and of weight decay, with their arguments."""
    keys: tuple[Key, ...] = get_args(Key)
    for key in keys:
        parts = f"{key} schedule"
        for name, kind in SCHEDULES.items():
            _state_scheduler(definitions, key, name, _generated(kind))
        names = [scheduler_name(name, key) for name in SCHEDULES]
        definitions[parts] = {"oneOf": [_ref(name) for name in names]}
    definitions["SchedulerConfig"] = {"anyOf": [_ref(f"{key} schedule") for key in keys]}
    definitions.pop("HyperSchedule", None)


def _state_scheduler(definitions: Schema, key: Key, schedule: str, arguments: Schema) -> None:
    name = scheduler_name(schedule, key)
    part = _ref(f"{key} schedule")
    arguments.pop("$defs", None)
    names = argument_names(SCHEDULES[schedule], key)
    properties = {names[field]: entry for field, entry in arguments["properties"].items()}
    if "schedulers" in properties:
        properties["schedulers"] = {"type": "array", "items": part}
    if "scheduler" in properties:
        properties["scheduler"] = part
    properties["param_group_tags"] = {
        "description": "Groups of parameters whose value the scheduler sets; all if left out.",
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
    }
    required = [names[field] for field in arguments.get("required", ())]
    body = {**arguments, "properties": properties, "required": required}
    definitions[name] = {
        "title": name,
        "description": body.pop("description", ""),
        "type": "object",
        "properties": {name: body},
        "required": [name],
        "additionalProperties": False,
    }


def _state_removals(definitions: Schema) -> None:
    """Accept ``{Callback: null}``, which removes a default callback."""
    definitions["removed callback"] = {
        "type": "object",
        "properties": {name: {"type": "null"} for name in sorted(REMOVABLE_CALLBACKS)},
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
    }
    for key in ("callbacks", "loggers"):
        listed, single, null = definitions["InitConfig"]["properties"][key]["anyOf"]
        either = {"anyOf": [single, _ref("removed callback")]}
        definitions["InitConfig"]["properties"][key]["anyOf"] = [
            {**listed, "items": either},
            either,
            null,
        ]


def _state_names(
    definitions: Schema, section: str, key: str, kinds: Mapping[str, type[BaseModel]]
) -> None:
    """Give the keys of a section by the registered name that it holds."""
    entry = definitions[section]
    sections: dict[type[BaseModel], list[str]] = {}
    for name, kind in kinds.items():
        sections.setdefault(kind, []).append(name)
    for kind in sections:
        own = _generated(kind)
        for other, definition in own.pop("$defs", {}).items():
            definitions.setdefault(other, definition)
        own["properties"].pop("class", None)
        definitions[kind.__name__] = own
    entry["properties"][key] = {**entry["properties"][key], "enum": [*kinds, None]}
    entry["allOf"] = [
        {
            "if": {"properties": {key: {"enum": names}}, "required": [key]},
            "then": _ref(kind.__name__),
        }
        for kind, names in sections.items()
    ]
