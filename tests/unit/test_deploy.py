"""Files of deploy/: the versions, commands and settings in them are those of the project."""

from __future__ import annotations

import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from appliance.spec import load_cluster
from scripts.check_manifests import documents
from waferstream.cli.main import main as waferstream
from waferstream.core.config import load_yaml, validate
from waferstream.management.model.inventory import Inventory
from waferstream.management.model.job import PRIORITIES

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = list(documents(DEPLOY / "kubernetes"))


def _manifest(kind: str) -> Any:
    return next(content for _, content in MANIFESTS if content["kind"] == kind)


CLUSTERS = {
    "cluster.yaml": _manifest("RayCluster")["spec"],
    "job.yaml": _manifest("RayJob")["spec"]["rayClusterSpec"],
}


@pytest.mark.parametrize("spec", CLUSTERS.values(), ids=CLUSTERS)
def test_cluster_has_the_pinned_ray_and_its_token(spec: dict[str, Any]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert f"ray=={spec['rayVersion']}" in extras["train"]
    assert extras["cluster"] == ["waferstream[train]", f"ray[default]=={spec['rayVersion']}"]
    assert spec["authOptions"] == {"mode": "token"}


def test_job_and_cluster_have_the_same_hosts() -> None:
    assert CLUSTERS["cluster.yaml"] == CLUSTERS["job.yaml"]


def test_job_runs_a_command_that_exists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, command, params, *flags = shlex.split(_manifest("RayJob")["spec"]["entrypoint"])
    assert (name, command) == ("waferstream", "fit")
    cluster = ROOT / flags[flags.index("--cluster") + 1]
    assert load_cluster(cluster).runtime.address == "auto"
    words = [str(ROOT / params), "--num_csx=4", "--cluster", str(cluster), "--validate_only"]
    assert waferstream(["fit", *words, f"--model_dir={tmp_path}"]) == 0, capsys.readouterr().err


def test_job_waits_in_a_queue_with_room_for_it() -> None:
    job, queue = _manifest("RayJob"), _manifest("ClusterQueue")["spec"]
    labels = {key.rpartition("/")[2]: name for key, name in job["metadata"]["labels"].items()}
    assert labels["queue-name"] == _manifest("LocalQueue")["metadata"]["name"]
    assert _manifest("LocalQueue")["spec"]["clusterQueue"] == "waferstream"
    (group,) = queue["resourceGroups"]
    (flavor,) = group["flavors"]
    assert flavor["name"] == _manifest("ResourceFlavor")["metadata"]["name"]
    quota = {each["name"]: each["nominalQuota"] for each in flavor["resources"]}
    spec = CLUSTERS["job.yaml"]
    pods = [spec["headGroupSpec"], *(2 * spec["workerGroupSpecs"])]
    needs = [pod["template"]["spec"]["containers"][0]["resources"]["requests"] for pod in pods]
    assert 4 * sum(int(each["cpu"]) for each in needs) < int(quota["cpu"])
    assert 4 * sum(int(each["memory"].removesuffix("Gi")) for each in needs) < int(
        quota["memory"].removesuffix("Gi")
    )


def test_priorities_of_the_queue_are_in_the_order_of_the_command() -> None:
    kind = "WorkloadPriorityClass"
    found = [content for _, content in MANIFESTS if content["kind"] == kind]
    values = {each["metadata"]["name"]: each["value"] for each in found}
    assert sorted(values, key=lambda name: -values[name]) == [
        f"waferstream-{name}" for name in PRIORITIES if name != "p0"
    ]
    labels = _manifest("RayJob")["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/priority-class"] in values


def test_hosts_of_the_launcher_are_accepted_by_ray() -> None:
    config = yaml.safe_load((DEPLOY / "ray_up.yaml").read_text(encoding="utf-8"))
    validate_config(prepare_config(config))
    starts = [*config["head_start_ray_commands"], *config["worker_start_ray_commands"]]
    of_ray = "RAY_AUTH_MODE=token RAY_worker_niceness=0 ray start"
    assert all(words.startswith(of_ray) for words in starts if "ray start" in words)


def test_slurm_script_has_no_error_of_syntax() -> None:
    subprocess.run(["bash", "-n", str(DEPLOY / "slurm.sh")], check=True)


@pytest.mark.parametrize(("name", "systems"), [("andromeda", 16), ("condor_galaxy", 64)])
def test_inventories_are_those_of_machines_that_were_built(name: str, systems: int) -> None:
    path = DEPLOY / "inventories" / f"{name}.yaml"
    inventory = validate(Inventory, load_yaml(path), str(path))
    assert len(inventory.systems) == systems
    assert {system.kind for system in inventory.systems} == {"CS-2"}
    names = [each.name for each in inventory.systems] + [each.name for each in inventory.groups]
    assert len(set(names)) == systems + 16
