"""What is wrong with the command line is said before any arm starts; who is alive when."""

import pytest

from benchmarks.streaming import __main__ as streaming
from benchmarks.streaming.arms.registry import openers
from benchmarks.streaming.workload import Workload

TINY = ["--hidden", "64", "--layers", "1", "--vocab", "64", "--sequence_length", "8"]


@pytest.fixture(autouse=True)
def _nothing_starts(monkeypatch):
    """No test of this file may start a real arm."""
    monkeypatch.setattr(streaming, "Arm", lambda *_: pytest.fail("an arm was started"))


@pytest.mark.parametrize(
    ("arms", "rule"),
    [
        (["plain", "gpu"], "plain, csxN or ddpN"),
        (["plain", "csx0"], "plain, csxN or ddpN"),
        (["plain", "csx9"], "every system has a micro-batch"),
        (["plain", "ddp3"], "divides the batch"),
    ],
)
def test_an_arm_that_cannot_be_is_refused(tmp_path, capsys, arms, rule):
    """Arms take minutes to set up; the last one's name is checked before the first is."""
    result = tmp_path / "result.json"
    status = streaming.main(["--json", str(result), *TINY, "--batch_sizes", "8", "--arms", *arms])
    assert status == 1
    assert rule in capsys.readouterr().err
    assert not result.exists()


def test_the_default_workload_is_a_gpt_of_98_million_parameters():
    """12 layers of 7.1 M, 16,384 tokens and 512 positions of 768: what the README says."""
    workload = Workload(
        hidden=768,
        layers=12,
        vocab=16384,
        sequence_length=512,
        batch_size=8,
        precision="fp32",
        cores=2,
    )
    layer = 12 * 768**2 + 13 * 768
    assert workload.num_parameters() == (16384 + 512) * 768 + 12 * layer + 2 * 768
    assert workload.micro_batch_size == 1


def test_ranks_of_an_arm_meet_in_one_place(tmp_path):
    """Every rank of ddp2 gets its own number, and all the same meeting point."""
    workload = Workload(64, 1, 64, 8, batch_size=8, precision="fp32", cores=2)
    ranks = [opener.args[1:] for opener in openers("ddp2", workload, tmp_path)]
    assert ranks == [(0, 2, tmp_path / "meeting_point"), (1, 2, tmp_path / "meeting_point")]


@pytest.mark.parametrize(
    ("one_at_a_time", "lives"),
    [
        (False, "+plain +csx1 plain csx1 plain csx1 -csx1 -plain"),
        (True, "+plain plain -plain +csx1 csx1 -csx1 " * 2),
    ],
)
def test_arms_live_together_or_one_at_a_time(monkeypatch, one_at_a_time, lives):
    """Through all turns, or, where memory is short, each for its own turns only."""
    log = []

    class Fake:
        def __init__(self, name, plan):
            self._name = name
            log.append(f"+{name}")

        def run(self, steps):
            log.append(self._name)
            return 1.0 * steps

        def close(self):
            log.append(f"-{self._name}")

    monkeypatch.setattr(streaming, "Arm", Fake)
    workload = Workload(64, 1, 64, 8, batch_size=8, precision="fp32", cores=2)
    compared = streaming.compare(workload, ["plain", "csx1"], 2, 3, one_at_a_time)
    assert log == lives.split()
    assert [turn.seconds for turn in compared.turns] == [3.0] * 4
