"""What the benchmark of recoveries reads in the log."""

import logging

from appliance.recovery.states import Parts
from benchmarks.recovery import noted
from waferstream.core.events import Recovered, RecoveryDecided


def test_recoveries_are_read_by_role_and_part() -> None:
    """Other lines change nothing."""
    now_s = 0.0
    parts = Parts(lambda: now_s)
    for part in ("aborting", "rolling back"):
        parts.begin(part)
        now_s += 1.5
    parts.end()
    log = logging.getLogger("waferstream")
    with noted() as recoveries:
        log.warning(RecoveryDecided("csx-1 died", ("csx-1",), "replace", "csx-1 lost"))
        log.warning(Recovered(parts.duration, 7))
        log.warning("another line")
    log.warning(Recovered(parts.duration, 8))
    assert recoveries.seconds == {"csx-1": [3.0]}
    assert recoveries.parts == {"aborting": [1.5], "rolling back": [1.5]}
