"""The parts of a recovery."""

from appliance.recovery.parts import Parts


def test_parts_are_stated_in_their_order() -> None:
    """A part that comes again adds its seconds; time before the first part counts in all."""
    now_s = 0.0
    parts = Parts(lambda: now_s)
    for part, seconds in (("", 0.5), ("ending", 1.0), ("starting", 4.0), ("ending", 0.25)):
        if part:
            parts.begin(part)
        now_s += seconds
    parts.end()
    now_s += 10.0
    assert str(parts) == "5.8 s (ending 1.2, starting 4.0)"
