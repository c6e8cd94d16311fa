"""JobRecords: compiles and executions in the order of their starts."""

from __future__ import annotations

from datetime import datetime

from cstorch.cluster.job_records import JobRecords
from waferstream.management.client.jobs import JobIds


def test_records_keep_the_order_of_their_jobs() -> None:
    records = JobRecords()
    first = records.begin_compile(JobIds("wsjob-1", "wflow-1"))
    records.begin_compile(JobIds("wsjob-2", "wflow-1"))
    records.begin_execution(JobIds("wsjob-3", "wflow-1"), ["csx-0", "csx-1"])
    assert [record.id for record in records.compile_jobs] == ["wsjob-1", "wsjob-2"]
    assert records.compile_jobs[0] is first
    assert records.execute_jobs[0].systems == ["csx-0", "csx-1"]


def test_end_time_is_that_of_the_first_end() -> None:
    record = JobRecords().begin_compile(JobIds("wsjob-1", "wflow-1"))
    times = [record.end_time]
    for _ in range(2):
        record.end()
        times.append(record.end_time)
    assert times[0] is None
    assert times[1] == times[2]
    assert datetime.fromisoformat(record.start_time) <= datetime.fromisoformat(str(times[1]))
