"""What of a command travels to an appliance."""

from __future__ import annotations

import pytest

from waferstream.management.client.submitting import travelling


@pytest.mark.parametrize(
    "given",
    ["--num_csx 2", "--num-csx 2", "--num-csx=2", "-o out", "--mgmt-address h:1 --detach"],
)
def test_flags_of_the_client_stay_here_however_they_are_spelled(given: str) -> None:
    words = ["train", "p.yaml", *given.split(), "--loop.max_steps", "3"]
    assert travelling(words) == ("train", "p.yaml", "--loop.max_steps", "3")
