"""Notices reach mail, Slack and PagerDuty; a receiver that fails is named."""

from __future__ import annotations

import pytest

from tests.support.errors import raises
from tests.support.management.receivers import relay, webhook
from waferstream.core.errors import ConfigError
from waferstream.management.model.notification import Notification, Severity
from waferstream.management.notices.notice import Notice
from waferstream.management.notices.sender import Relays, Sender

NOTICE = Notice("wflow-1", Severity.FAILURE, "wflow-1 has failed", "out of memory")


def test_mail_goes_through_the_relay() -> None:
    with relay() as (address, mails):
        sender = Sender(Relays(mail=address, sender="cluster@example.org"))
        assert sender.send(NOTICE, Notification(mailto=("ann@example.org", "bob@x.org"))) == []
    (mail,) = mails
    assert "To: ann@example.org, bob@x.org" in mail
    assert "Subject: wflow-1 has failed" in mail
    assert "out of memory" in mail


def test_webhooks_are_posted_to() -> None:
    with webhook() as (url, posts):
        sender = Sender(Relays(webhooks=(f"{url}/services/",), pagerduty=f"{url}/v2/enqueue"))
        target = Notification(slack=(f"{url}/services/T1",), pagerduty=("key1",))
        assert sender.send(NOTICE, target) == []
    (slack_path, slack), (pager_path, page) = posts
    assert (slack_path, pager_path) == ("/services/T1", "/v2/enqueue")
    assert slack == {"text": "*wflow-1 has failed*\nout of memory"}
    assert (page["routing_key"], page["payload"]["severity"]) == ("key1", "error")


@pytest.mark.parametrize("status", [302, 307, 500])
def test_receiver_that_fails_is_named(status: int) -> None:
    """A redirection is not followed: it could lead into the network of the appliance."""
    with webhook(status) as (url, posts):
        failures = Sender(Relays(webhooks=(url,))).send(NOTICE, Notification(slack=(url,)))
    assert [path for path, _ in posts] == ["/"] or [path for path, _ in posts] == [""]
    (failure,) = failures
    assert failure.startswith("slack: ")


def test_only_known_webhooks_are_asked() -> None:
    with webhook() as (url, posts):
        failures = Sender(Relays()).send(NOTICE, Notification(slack=(url,)))
    assert (len(failures), posts) == (1, [])


def test_without_a_relay_no_mail_is_sent() -> None:
    (failure,) = Sender(Relays()).send(NOTICE, Notification(mailto=("ann@example.org",)))
    assert failure.startswith("mail: ")


@pytest.mark.parametrize(
    "wrong",
    [
        {"mailto": "ann@example.org\nBcc: all@example.org"},
        {"mailto": "ann"},
        {"slack": "file:///etc/passwd"},
        {"pagerduty": "a b"},
        {"severity_threshold": 4},
        {"telegram": "ann"},
    ],
)
def test_wrong_target_is_refused(wrong: dict[str, object]) -> None:
    code = "unknown-key" if "telegram" in wrong else "not-allowed"
    code = "out-of-range" if "severity_threshold" in wrong else code
    with raises(ConfigError, code):
        Notification.model_validate(wrong)
