"""The parsers of what comes from networks, caches and strangers, each with inputs to mutate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import yaml

from appliance.checkpoints.folder import INDEX_NAME, CheckpointFolder
from appliance.spec import load_cluster
from benchmarks.fuzz.campaign import Target, through_file
from benchmarks.fuzz.file_targets import conversion_targets, file_targets
from benchmarks.fuzz.mutations import of_bytes, of_trees
from benchmarks.fuzz.store_targets import store_targets
from swarmx.links.memory import MemorySlab
from swarmx.links.unix.connection import decode_message, encode_message
from swarmx.links.wire.messages import (
    DamagedMessageError,
    decode_header,
    encode_header,
    envelope_of,
)
from waferstream.compiler.compiled import (
    Compiled,
    DamagedArtifactError,
    compiled_from_json,
    compiled_to_json,
)
from waferstream.config.phases import load_phases
from waferstream.core.messages.messages import (
    BatchReady,
    Envelope,
    GradientReady,
    Message,
    NormPartial,
    NormTotal,
    StepDone,
    WeightsReady,
)
from waferstream.core.messages.reduce_order import Subtree
from waferstream.core.program.kernel_source import KernelSource
from waferstream.core.program.program import Program, ProgramKind, TensorSpec
from waferstream.host.user_state import sealed
from waferstream.management.door.handlers import json_object, read_operation
from waferstream.management.model.operations import Submit
from waferstream.management.model.workflow import Submission

_ROOT = Path(__file__).parents[2]
_PAYLOAD_LIMIT = 4096


def all_targets(folder: Path) -> tuple[Target, ...]:
    """Return the targets; those that read files write each input into ``folder``."""
    return (
        *store_targets(),
        *_messages(),
        *_configurations(folder),
        *file_targets(folder),
        *_caches(),
        *_operations(),
        *conversion_targets(folder),
    )


def _messages() -> tuple[Target, ...]:
    """Return the parsers of what arrives on links."""
    slab = MemorySlab(48)
    slab.view(torch.uint8).fill_(7)
    messages: tuple[Message, ...] = (
        WeightsReady(1, 2, 3, slab, loss_scale=2.0),
        GradientReady(1, 0, 3, Subtree(8, 3), slab),
        BatchReady(1, 5, slab, (0.1, 1.0)),
        NormPartial(1, 2, ((0, 0.1), (7, 1e300))),
        NormTotal(1, float("inf")),
        StepDone(1, ((0, (0.5, torch.ones(2, 3), None)),), ()),
    )
    envelopes = [Envelope("wgt-0", "csx-1", message) for message in messages]
    headers = [encode_header(envelope) for envelope in envelopes]
    whole = [encode_message(envelope) for envelope in envelopes]

    def read_header(content: bytes) -> object:
        header, payload_bytes = decode_header(content)
        return envelope_of(header, MemorySlab(min(payload_bytes or 0, _PAYLOAD_LIMIT)))

    def read_message(content: bytes) -> object:
        return decode_message(memoryview(content), _PAYLOAD_LIMIT)

    typed = (DamagedMessageError,)
    return (
        Target("header of a message", 560, of_bytes(headers), read_header, typed),
        Target("message on a socket", 370, of_bytes(whole), read_message, typed),
    )


def _configurations(folder: Path) -> tuple[Target, ...]:
    """Return the readers of YAML: mutated as trees, so that most inputs are YAML, and as bytes."""
    sources = [_ROOT / "params.yaml", *sorted((_ROOT / "modelzoo" / "params").glob("*.yaml"))]
    params = [_plain(path) for path in sources]
    cluster = [_plain(_ROOT / "cluster.yaml"), _CLUSTER]
    index = [{"checkpoints": [_entry("a_1.mdl", 1), _entry("a_2.mdl", 2)]}]
    texts = [_yaml(tree) for tree in (*cluster, *index)]
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir()
    for name in ("a_1.mdl", "a_2.mdl"):
        (checkpoints / name).touch()

    def read_index(_: Path) -> object:
        return CheckpointFolder(checkpoints, "a_{step}.mdl").entries()

    return (
        Target(
            "params.yaml", 5, of_trees(params, _yaml), through_file(folder / "p.yaml", load_phases)
        ),
        Target(
            "cluster.yaml",
            5,
            of_trees(cluster, _yaml),
            through_file(folder / "c.yaml", load_cluster),
        ),
        Target("YAML text", 5, of_bytes(texts), through_file(folder / "t.yaml", load_cluster)),
        Target(
            "checkpoint index",
            5,
            of_trees(index, _yaml),
            through_file(checkpoints / INDEX_NAME, read_index),
        ),
    )


def _caches() -> tuple[Target, ...]:
    """Return the readers of what earlier runs have left."""
    artifact = [json.loads(compiled_to_json(_compiled()))]

    def read_artifact(content: bytes) -> object:
        return compiled_from_json(content, "cs_0")

    return (
        Target(
            "compile artifact",
            8,
            of_trees(artifact, _resealed),
            read_artifact,
            (DamagedArtifactError,),
        ),
    )


def _operations() -> tuple[Target, ...]:
    """Return the parser of what comes through the doors of a management."""
    submission = Submission(words=("--params", "p.yaml"), num_csx=4, labels={"a": "b"})
    operation = json.loads(Submit(submission=submission).model_dump_json())

    def read(content: bytes) -> object:
        return read_operation("Submit", json_object(content))

    return (Target("operation", 4, of_trees([operation], _json), read),)


_CLUSTER = {
    "machine": {
        "system": {"name": "CS-3", "clock_hz": 900000000, "defects": {"pe_yield": 1.0}},
        "memoryx": {"weight_servers": 2},
        "swarmx": {"fan_out": 2},
    },
    "runtime": {
        "kind": "local",
        "address": "auto",
        "cores": 2,
        "queue": {"systems": 4, "memoryx_groups": 1},
        "start_timeout_s": 5.0,
        "log": {"folder": "logs", "levels": {"wgt": "INFO"}},
    },
}


def _entry(name: str, step: int) -> dict[str, object]:
    return {"step": step, "file": name, "time": "2026-01-01T00:00:00Z"}


def _plain(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _yaml(tree: Any) -> bytes:
    return yaml.dump(tree, Dumper=yaml.CSafeDumper).encode()


def _json(tree: Any) -> bytes:
    return json.dumps(tree, default=str, skipkeys=True).encode()


def _resealed(tree: Any) -> bytes:
    """Return JSON with the seal of its content, so that what is behind the seal is read, too."""
    if isinstance(tree, dict) and "content" in tree:
        content = json.loads(_json(tree["content"]))
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
        tree = {**tree, "content": content, "seal": sealed(canonical)}
    return _json(tree)


def _compiled() -> Compiled:
    """Return a program without segments, and one kernel that counts labels."""
    spec = TensorSpec("x", (2, 4), "float32")
    program = Program(ProgramKind.TRAIN, "cs_0", (spec,), "float32", (spec,), 1, (), 2, 5)
    kernel = KernelSource("def forward(self, x):\n    return (x,)", {}, {"c": torch.ones(2, 2)})
    return Compiled(program, (), label_counts=kernel)
