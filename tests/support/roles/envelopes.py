"""Read payloads of messages in tests."""

from __future__ import annotations

from waferstream.core.messages.messages import BatchReady, Envelope, GradientReady, WeightsReady
from waferstream.core.messages.payload import Payload


def payload_of(envelope: Envelope) -> Payload:
    """Return the payload of a message that has one."""
    assert isinstance(envelope.message, WeightsReady | GradientReady | BatchReady)
    return envelope.message.payload
