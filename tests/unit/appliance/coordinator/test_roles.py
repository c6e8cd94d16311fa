"""What travels between coordinator and roles."""

from appliance.coordinator.roles import PART_BYTES, in_parts


def test_parts_hold_what_may_travel_at_once() -> None:
    """In order; a tensor above the limit goes alone."""
    half, third = PART_BYTES // 2, PART_BYTES // 3
    sizes = {"a": half, "b": half, "c": 1, "d": 2 * PART_BYTES, "e": third, "f": third, "g": half}
    assert list(in_parts(sizes)) == [["a", "b"], ["c"], ["d"], ["e", "f"], ["g"]]
    assert list(in_parts({})) == []
