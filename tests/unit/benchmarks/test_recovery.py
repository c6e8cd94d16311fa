"""What the benchmark of recoveries reads in the log."""

import logging

from appliance.recovery.states import Parts
from benchmarks.recovery import noted


def test_recoveries_are_read_by_role_and_part() -> None:
    """The line is the one that a recovery logs; other lines change nothing."""
    now_s = 0.0
    parts = Parts(lambda: now_s)
    for part in ("aborting", "rolling back"):
        parts.begin(part)
        now_s += 1.5
    parts.end()
    log = logging.getLogger("waferstream")
    with noted() as recoveries:
        log.warning("Recovery: %s", "csx-1 died: replace, csx-1 lost")
        log.warning("Recovery: %s", f"recovered in {parts}; step 7 runs again")
        log.warning("another line")
    log.warning("Recovery: %s", f"recovered in {parts}; step 8 runs again")
    assert recoveries.seconds == {"csx-1": [3.0]}
    assert recoveries.parts == {"aborting": [1.5], "rolling back": [1.5]}
