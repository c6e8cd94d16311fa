import os
import subprocess
import sys

import pytest
import torch

from appliance.ray.hosts.arithmetic import arithmetic_digest, compare_arithmetic
from tests.support.host.older_processors import needs_other_kernels, older_kernels
from waferstream.core.errors import ClusterJobInitError

SHOW = "from appliance.ray.hosts.arithmetic import arithmetic_digest as d; print(d())"


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
