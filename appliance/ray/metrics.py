"""What each role tells Ray's metrics, and through them the dashboard and Prometheus.

The role only counts; a thread reports the counts every few seconds, so that no message waits.
"""

from __future__ import annotations

import threading
from typing import Any

from ray.util.metrics import Counter, Gauge

from waferstream.core.messages.messages import Envelope

_PERIOD_S = 5.0  # between two reports to Ray
_COUNTERS = {
    "sent_bytes": "Bytes of payloads that the role has sent",
    "sent_messages": "Messages that the role has sent",
    "wait_seconds": "Seconds in a job in which the role has waited for a message",
}


class RoleMetrics:
    """The counts of one role; ``role`` is a tag of every metric.

    Args:
        role: The name of the role.
        period_s: Seconds between two reports.
    """

    def __init__(self, role: str, period_s: float = _PERIOD_S) -> None:
        self._queued = 0  # most messages since the last report
        self.step = 0
        """The latest step of which the role has handled a message."""
        self._counts = dict.fromkeys(_COUNTERS, 0.0)
        self._reported = dict(self._counts)
        self._counters: dict[str, Any] = {
            name: Counter(f"waferstream_{name}", text, tag_keys=("role",))
            for name, text in _COUNTERS.items()
        }
        self._step: Any = Gauge("waferstream_step", "The step of the role", tag_keys=("role",))
        self._queue: Any = Gauge(
            "waferstream_queued_messages",
            "Most messages that have waited for the role since the last report",
            tag_keys=("role",),
        )
        for meter in (*self._counters.values(), self._step, self._queue):
            meter.set_default_tags({"role": role})
        self._period_s = period_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._report_on, name="metrics", daemon=True)
        self._thread.start()

    def note_sent(self, envelope: Envelope) -> None:
        """Count a message."""
        payload = getattr(envelope.message, "payload", None)
        self._counts["sent_messages"] += 1
        self._counts["sent_bytes"] += 0 if payload is None else payload.num_bytes

    def note_queue(self, num_messages: int) -> None:
        """Note how many messages wait for the role."""
        self._queued = max(self._queued, num_messages)

    def note_wait(self, seconds: float) -> None:
        """Count seconds without a message."""
        self._counts["wait_seconds"] += seconds

    def report(self) -> None:
        """Tell Ray what has been counted since the last report."""
        for name, counter in self._counters.items():
            now = self._counts[name]
            if now > self._reported[name]:
                counter.inc(now - self._reported[name])
                self._reported[name] = now
        self._step.set(self.step)
        self._queue.set(self._queued)
        self._queued = 0

    def close(self) -> None:
        """Report for the last time and end the thread. Idempotent."""
        self._over.set()
        self._thread.join()

    def _report_on(self) -> None:
        while not self._over.wait(self._period_s):
            self.report()
        self.report()
