"""What a coordinator keeps of measured activities."""

from appliance.coordinator.measured_record import MeasuredRecord
from waferstream.core.roles.activities import Interval
from waferstream.core.roles.role import Report


def report(role: str, *starts: int) -> Report:
    return Report(role, intervals=[Interval("compute", start, start + 1) for start in starts])


def test_record_keeps_the_first_activities_of_all_roles() -> None:
    """By time, whatever the order of the roles."""
    record = MeasuredRecord(limit=3)
    record.take([report("csx-0", 10, 30), report("csx-1", 20, 40)])
    starts = {role: [each.start_ns for each in of] for role, of in record.all().items()}
    assert starts == {"crd-0": [], "csx-0": [10, 30], "csx-1": [20]}
    assert (record.num_lost, record.num_left) == (1, 0)


def test_copy_of_a_record_keeps_what_there_was() -> None:
    record = MeasuredRecord(limit=10)
    record.take([report("csx-0", 10)])
    copied = record.copy()
    record.add({"csx-0": Interval("save", 20, 30)})
    assert [each.start_ns for each in copied.all()["csx-0"]] == [10]
    assert [each.activity for each in record.all()["csx-0"]] == ["compute", "save"]


def test_record_without_a_limit_keeps_nothing() -> None:
    record = MeasuredRecord(limit=0)
    record.take([report("csx-0", 10)])
    assert (record.by_role, record.num_lost) == ({}, 0)
