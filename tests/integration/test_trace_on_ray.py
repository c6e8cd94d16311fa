"""The trace of a run on real Ray, and what Perfetto's own trace processor makes of it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.support.reports.perfetto import NEEDED, NODE, processor_folder, query
from tests.support.reports.traces import Trace, read_trace
from tests.support.runs.tiny_run import write_run
from waferstream.cli.main import main
from waferstream.reports.run.summary import SUMMARY_NAME

pytestmark = [pytest.mark.ray, pytest.mark.nightly, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on two systems that trains, evaluates and saves."""
    folder = tmp_path_factory.mktemp("traced")
    loop = {"max_steps": 4, "eval_frequency": 2, "eval_steps": 1}
    written = write_run(folder, kind="ray", compiles=True, init__loop=loop)
    flags = [*written, "--num_csx=2", "--num_wgt_servers=2"]
    assert main([*flags, f"--trace={folder / 'trace.json'}"], home=folder) == 0
    return folder


@pytest.fixture(scope="module")
def trace(folder: Path) -> Trace:
    return read_trace(folder / "trace.json")


def test_every_role_of_a_ray_cluster_has_a_track(trace: Trace) -> None:
    roles = {name.partition(" (")[0] for name in trace.tracks("measured")}
    pairs = {f"{kind}-{number}" for kind in ("wgt", "csx") for number in (0, 1)}
    assert roles >= {"program", "crd-0", "br-0", "wrk-0", *pairs}


def test_measured_slices_of_all_processes_are_on_one_clock(trace: Trace) -> None:
    """What roles do for a job lies within the coordinator's slice of it."""
    jobs = [each for each in trace.of("measured", "crd-0") if each.name == "run"]
    for each in trace.of("measured", "csx-0"):
        assert any(job.start_ns <= each.start_ns <= each.end_ns <= job.end_ns for job in jobs)


def test_emulated_slices_sum_to_the_summary(folder: Path, trace: Trace) -> None:
    """All training steps together, by cause, to the picosecond."""
    (path,) = (folder / "model_dir").glob(f"*/{SUMMARY_NAME}")
    summary = json.loads(path.read_text(encoding="utf-8"))
    spent: Counter[str] = Counter()
    for (mode, _), attribution in trace.attributions().items():
        if mode == "train":
            spent.update(asdict(attribution))
    assert dict(spent) == summary["emulated"]["attribution_ps"]


@pytest.mark.skipif(NODE is None or processor_folder() is None, reason=NEEDED)
def test_perfetto_sees_what_was_written(folder: Path, trace: Trace) -> None:
    """Its trace processor reports no error, and has each slice, track, argument and counter."""
    errors, processes, slices, causes, counters = query(
        folder / "trace.json",
        "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0",
        "SELECT name FROM process WHERE pid > 0 ORDER BY pid",
        "SELECT process.name, thread.name, slice.name, ts, ts + dur FROM slice"
        " JOIN thread_track ON track_id = thread_track.id JOIN thread USING (utid)"
        " JOIN process USING (upid)",
        "SELECT extract_arg(arg_set_id, 'args.attribution') AS cause,"
        " sum(extract_arg(arg_set_id, 'args.ps')) FROM slice"
        " JOIN thread_track ON track_id = thread_track.id JOIN thread USING (utid)"
        " WHERE thread.name = 'CS attribution' GROUP BY cause",
        "SELECT DISTINCT name FROM counter_track",
    )
    assert errors == []
    assert processes == [["emulated"], ["measured"]]
    assert sorted(map(tuple, slices)) == sorted(
        (each.process, each.track, each.name, each.start_ns, each.end_ns) for each in trace.slices
    )
    spent: Counter[str] = Counter()
    for attribution in trace.attributions().values():
        spent.update({cause: ps for cause, ps in asdict(attribution).items() if ps})
    assert dict(causes) == dict(spent)
    assert {"CS SRAM activation bytes", "SwarmX up bytes/s"} <= {name for (name,) in counters}
