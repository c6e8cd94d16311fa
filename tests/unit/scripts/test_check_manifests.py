"""check_manifests: valid and invalid manifests, against schemas of a checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.check_manifests import fault, main, schemas

STRING = {"type": "string"}


def _definitions(folder: Path, group: str, version: str, **specs: dict[str, Any]) -> Path:
    """Write the definition of each kind, whose manifests have ``spec`` as given."""
    folder.mkdir(parents=True)
    for kind, spec in specs.items():
        properties = {"apiVersion": STRING, "kind": STRING, "spec": spec}
        schema = {"type": "object", "properties": properties | {"metadata": {"type": "object"}}}
        served = {"name": version, "schema": {"openAPIV3Schema": schema}}
        definition = {"group": group, "names": {"kind": kind}, "versions": [served]}
        (folder / f"{kind}.yaml").write_text(yaml.safe_dump({"spec": definition}))
    return folder


def _checkouts(folder: Path, spec: dict[str, Any]) -> list[str]:
    """Write checkouts of KubeRay and Kueue; return the flags that name them."""
    ray, queue = folder / "kuberay", folder / "kueue"
    _definitions(
        ray / "ray-operator/config/crd/bases", "ray.io", "v1", RayCluster=spec, RayJob=spec
    )
    bases = queue / "config/components/crd/bases"
    _definitions(bases, "kueue.x-k8s.io", "v1beta2", LocalQueue={"type": "object"})
    return [f"--kuberay={ray}", f"--kueue={queue}"]


def test_manifests_are_checked_by_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(_checkouts(tmp_path, {"type": "object"})) == 0
    lines = ["cluster.yaml: RayCluster: valid", "job.yaml: RayJob: valid"]
    assert capsys.readouterr().out.splitlines() == [*lines, "queue.yaml: LocalQueue: valid"]


def test_unknown_field_of_a_manifest_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {"type": "object", "properties": {"rayVersion": STRING}}
    assert main(_checkouts(tmp_path, spec)) == 1
    assert "$.spec: Additional properties" in capsys.readouterr().out


def test_folder_without_schemas_is_an_error(tmp_path: Path) -> None:
    assert main([f"--kuberay={tmp_path}", f"--kueue={tmp_path}"]) == 1


def test_number_of_a_resource_may_be_a_string(tmp_path: Path) -> None:
    cpu = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}]}
    spec = {"type": "object", "properties": {"cpu": cpu}}
    known = schemas(_definitions(tmp_path / "bases", "ray.io", "v1", RayJob=spec))
    schema = known["ray.io/v1", "RayJob"]
    assert fault({"spec": {"cpu": "2"}}, schema) is None
    assert fault({"spec": {"cpu": 2}}, schema) is None
    assert fault({"spec": {"cpu": [2]}}, schema) is not None
