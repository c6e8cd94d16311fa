"""Check the manifests of `deploy/kubernetes` against the schemas of checkouts of KubeRay and Kueue.

    python -m scripts.check_manifests --kuberay DIR --kueue DIR

Unknown fields are refused, too, as `kubectl apply --validate=strict` does.
Exit codes: 0 all manifests of their kinds are valid, 1 one is not, or there are none.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import yaml

MANIFESTS = Path(__file__).parents[1] / "deploy" / "kubernetes"
_KUBERAY, _KUEUE = "ray-operator/config/crd/bases", "config/components/crd/bases"
_KEEPS_UNKNOWN_FIELDS = "x-kubernetes-preserve-unknown-fields"

Kind = tuple[str, str]  # apiVersion and kind


def documents(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield every manifest of a folder with its file."""
    for path in sorted(folder.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            yield path, document


def schemas(folder: Path) -> dict[Kind, Any]:
    """Return the strict schemas of all versions of the kinds that a folder defines."""
    found = {}
    for _, definition in documents(folder):
        spec = definition["spec"]
        for version in spec["versions"]:
            schema = _strict(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {}  # the server checks it for all kinds
            found[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema
    return found


def _strict(schema: Any) -> Any:
    """Return a schema that refuses unknown fields wherever it lists the known ones."""
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    strict = {key: _strict(part) for key, part in schema.items()}
    if "properties" in strict and not strict.get(_KEEPS_UNKNOWN_FIELDS):
        strict.setdefault("additionalProperties", False)
    return strict


def fault(manifest: dict[str, Any], schema: Any) -> str | None:
    """Return where and why a manifest violates a schema, None if it is valid."""
    try:
        jsonschema.validate(manifest, schema)
    except jsonschema.ValidationError as error:
        return f"{error.json_path}: {error.message}"
    return None


def main(words: list[str] | None = None) -> int:
    """Print the state of every manifest of known kinds; return the exit code."""
    parser = argparse.ArgumentParser(description="Check the manifests of deploy/kubernetes.")
    parser.add_argument("--kuberay", type=Path, required=True, help="checkout of KubeRay")
    parser.add_argument("--kueue", type=Path, required=True, help="checkout of Kueue")
    given = parser.parse_args(words)
    known = schemas(given.kuberay / _KUBERAY) | schemas(given.kueue / _KUEUE)
    faults = []
    for path, manifest in documents(MANIFESTS):
        kind = (manifest["apiVersion"], manifest["kind"])
        if kind in known:
            faults.append(fault(manifest, known[kind]))
            print(f"{path.name}: {manifest['kind']}: {faults[-1] or 'valid'}")
    return 0 if faults and not any(faults) else 1


if __name__ == "__main__":
    sys.exit(main())
