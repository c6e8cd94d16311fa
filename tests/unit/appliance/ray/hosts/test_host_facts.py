from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from appliance.ray.hosts.host_facts import (
    PACKAGES,
    Facts,
    arithmetic_digest,
    compare,
    compare_arithmetic,
    compare_gpus,
    portable_look,
)
from tests.support.host.older_processors import needs_other_kernels, older_kernels
from waferstream.core.errors import ClusterJobInitError

SHOW = "from appliance.ray.hosts.host_facts import arithmetic_digest as d; print(d())"


@pytest.fixture
def facts() -> Facts:
    """What the look at this host finds."""
    return Facts(**portable_look()(PACKAGES))  # type: ignore[arg-type]  # each has its type


def test_look_finds_the_installed_code_and_the_processor(facts: Facts) -> None:
    assert "" not in (facts.python, facts.torch, facts.code, facts.processor)
    assert min(facts.cores, facts.free_bytes) > 0


def test_package_that_is_missing_leaves_no_code() -> None:
    assert portable_look()([*PACKAGES, "no_such_package"])["code"] == ""


def test_variable_that_chooses_kernels_is_part_of_the_processor(
    facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    assert portable_look()(PACKAGES)["processor"] != facts.processor


@pytest.mark.parametrize("field", ["python", "torch", "code"])
def test_host_with_another_version_is_refused(facts: Facts, field: str) -> None:
    other = Facts(**{**vars(facts), "name": "b", field: "other"})
    with pytest.raises(ClusterJobInitError, match="must be that of the host") as refused:
        compare({"b": other, "a": facts}, own="a")
    assert (refused.value.code, refused.value.where) == ("host-differs", "b")


def test_host_without_shared_memory_is_refused(facts: Facts) -> None:
    with pytest.raises(ClusterJobInitError, match="too little space in /dev/shm"):
        compare({"a": replace(facts, shared_bytes=1 << 20)}, own="a")


def test_hosts_of_another_kind_of_processor_are_compared_elsewhere(facts: Facts) -> None:
    compare({"a": facts, "b": replace(facts, processor="another")}, own="a")


def test_digest_repeats_and_leaves_the_threads_as_they_are() -> None:
    threads = torch.get_num_threads()
    assert arithmetic_digest() == arithmetic_digest()
    assert torch.get_num_threads() == threads


@needs_other_kernels
def test_kernels_for_other_instructions_have_another_digest() -> None:
    environment = {**os.environ, **older_kernels()}
    command = [sys.executable, "-c", SHOW]
    there = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert there.stdout.strip() != arithmetic_digest()


def test_host_with_other_bits_is_refused() -> None:
    compare_arithmetic({"a": "11", "b": "11"}, own="a")
    with pytest.raises(ClusterJobInitError, match="computes other bits") as refused:
        compare_arithmetic({"a": "11", "b": "11", "c": "12"}, own="a")
    assert refused.value.code == "host-computes-differently"
    assert refused.value.where == "c"


def test_hosts_with_gpus_of_several_kinds_are_refused(facts: Facts) -> None:
    """One without a GPU has servers alone."""
    first, second, none = (replace(facts, gpus=each) for each in ("H100", "A100", ""))
    compare_gpus([first, none, first])
    with pytest.raises(ClusterJobInitError, match="of one kind") as refused:
        compare_gpus([first, none, second])
    assert refused.value.code == "hosts-with-other-gpus"
