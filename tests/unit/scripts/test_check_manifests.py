"""check_manifests: valid and invalid manifests, against schemas of a checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.check_manifests import fault, main, schemas

STRING = {"type": "string"}


def _checkout(folder: Path, spec: dict[str, Any]) -> Path:
    bases = folder / "ray-operator" / "config" / "crd" / "bases"
    bases.mkdir(parents=True)
    for kind in ("RayCluster", "RayJob"):
        properties = {"apiVersion": STRING, "kind": STRING, "spec": spec}
        schema = {"type": "object", "properties": properties | {"metadata": {"type": "object"}}}
        version = {"name": "v1", "schema": {"openAPIV3Schema": schema}}
        definition = {"group": "ray.io", "names": {"kind": kind}, "versions": [version]}
        (bases / f"{kind}.yaml").write_text(yaml.safe_dump({"spec": definition}))
    return folder


def test_manifests_are_checked_by_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--kuberay", str(_checkout(tmp_path, {"type": "object"}))]) == 0
    lines = ["cluster.yaml: RayCluster: valid", "job.yaml: RayJob: valid"]
    assert capsys.readouterr().out.splitlines() == lines


def test_unknown_field_of_a_manifest_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {"type": "object", "properties": {"rayVersion": STRING}}
    assert main(["--kuberay", str(_checkout(tmp_path, spec))]) == 1
    assert "$.spec: Additional properties" in capsys.readouterr().out


def test_folder_without_schemas_is_an_error(tmp_path: Path) -> None:
    assert main(["--kuberay", str(tmp_path)]) == 1


def test_number_of_a_resource_may_be_a_string(tmp_path: Path) -> None:
    cpu = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}]}
    known = schemas(_checkout(tmp_path, {"type": "object", "properties": {"cpu": cpu}}))
    schema = known["ray.io/v1", "RayJob"]
    assert fault({"spec": {"cpu": "2"}}, schema) is None
    assert fault({"spec": {"cpu": 2}}, schema) is None
    assert fault({"spec": {"cpu": [2]}}, schema) is not None
