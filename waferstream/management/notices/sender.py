"""Senders of notices: mail by a relay, and webhooks of Slack and PagerDuty, with time limits."""

from __future__ import annotations

import json
import smtplib
from collections.abc import Callable, Iterator, Mapping, Sequence
from email.message import EmailMessage
from functools import partial
from typing import Any
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pydantic import Field

from waferstream.core.config import Config
from waferstream.management.model.notification import Notification, Severity
from waferstream.management.notices.notice import Notice

TIMEOUT_S = 10.0
"""How long a relay or a webhook may take."""

_PAGERDUTY = {Severity.FAILURE: "error", Severity.PAUSE: "warning", Severity.END: "info"}


class Relays(Config):
    """Through what an appliance sends notices."""

    mail: str = Field(default="", pattern=r"^(|[^\s:]+:\d{1,5})$")
    """``host:port`` of an SMTP relay; empty sends no mail."""

    sender: str = "waferstream@localhost"
    """The address that mail comes from."""

    webhooks: tuple[str, ...] = ("https://hooks.slack.com/",)
    """How addresses of webhooks must begin, so that no user lets the appliance ask others."""

    pagerduty: str = "https://events.pagerduty.com/v2/enqueue"
    """Where events for PagerDuty go (its Events API v2)."""


class _NoRedirect(HTTPRedirectHandler):
    """Refuses to go where an answer points to."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Return no request."""


class Sender:
    """Sends notices; each call takes ``TIMEOUT_S`` for a target at most."""

    def __init__(self, relays: Relays) -> None:
        self._relays = relays
        self._opener = build_opener(_NoRedirect)

    def send(self, notice: Notice, target: Notification) -> list[str]:
        """Send a notice to all that a user has named; return what has failed, and why."""
        failures = []
        for name, send in self._sendings(notice, target):
            try:
                send()
            except (OSError, smtplib.SMTPException, ValueError) as error:
                failures.append(f"{name}: {error}")
        return failures

    def _sendings(
        self, notice: Notice, target: Notification
    ) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield what is to be done, with its name."""
        if target.mailto:
            yield "mail", partial(self._mail, notice, target.mailto)
        for url in target.slack:
            text = {"text": f"*{notice.title}*\n{notice.text}"}
            yield "slack", partial(self._post_to_webhook, url, text)
        for key in target.pagerduty:
            yield "pagerduty", partial(self._post, self._relays.pagerduty, _page(notice, key))

    def _mail(self, notice: Notice, addresses: Sequence[str]) -> None:
        host, _, port = self._relays.mail.rpartition(":")
        if not host:
            raise ValueError("the appliance has no relay for mail")
        message = EmailMessage()
        message["From"], message["To"] = self._relays.sender, ", ".join(addresses)
        message["Subject"] = notice.title
        message.set_content(notice.text)
        with smtplib.SMTP(host, int(port), timeout=TIMEOUT_S) as relay:
            relay.send_message(message)

    def _post_to_webhook(self, url: str, content: Mapping[str, Any]) -> None:
        if not url.startswith(self._relays.webhooks):
            raise ValueError(f"webhooks must begin with {' or '.join(self._relays.webhooks)}")
        self._post(url, content)

    def _post(self, url: str, content: Mapping[str, Any]) -> None:
        headers = {"Content-Type": "application/json"}
        request = Request(url, json.dumps(content).encode(), headers)
        with self._opener.open(request, timeout=TIMEOUT_S):
            pass


def _page(notice: Notice, key: str) -> dict[str, Any]:
    """Return the event of a notice for PagerDuty."""
    return {
        "routing_key": key,
        "event_action": "trigger",
        "dedup_key": f"{notice.workflow}-{notice.severity}",
        "payload": {
            "summary": notice.title,
            "source": notice.workflow,
            "severity": _PAGERDUTY[notice.severity],
            "custom_details": {"text": notice.text},
        },
    }
