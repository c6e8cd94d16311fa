"""Lost and repeated messages are found by their numbers, however late they arrive."""

from tests.support.errors import raises
from waferstream.core.errors import ApplianceCorruptionError
from waferstream.core.messages.message_numbers import MessageNumbers
from waferstream.core.messages.messages import Abort, BatchReleased, Envelope, Tally


def messages(source: str, target: str, count: int) -> list[Envelope]:
    """Messages without a number."""
    return [Envelope(source, target, BatchReleased(1, index)) for index in range(count)]


def test_messages_are_counted_by_direction() -> None:
    """A message that has a number keeps it."""
    numbers = MessageNumbers()
    sent = [numbers.numbered(each) for target in "bcb" for each in messages("a", target, 2)]
    assert [(each.target, each.number) for each in sent] == [
        ("b", 1), ("b", 2), ("c", 1), ("c", 2), ("b", 3), ("b", 4),
    ]  # fmt: skip
    assert numbers.numbered(sent[0]) == sent[0]
    assert numbers.numbered(messages("a", "b", 1)[0]).number == 5


def test_message_behind_a_lost_one_names_it() -> None:
    """Senders are counted apart."""
    sender, receiver = MessageNumbers(), MessageNumbers()
    first, _, third = map(sender.numbered, messages("a", "b", 3))
    assert receiver.takes(first)
    assert receiver.takes(MessageNumbers().numbered(messages("c", "b", 1)[0]))
    with raises(ApplianceCorruptionError, "message-lost") as caught:
        receiver.takes(third)
    assert (caught.value.where, caught.value.value) == ("b", "message 2 of a")


def test_tally_finds_the_loss_of_a_last_message() -> None:
    """A tally is sent once for the same messages, and one that agrees is passed over."""
    sender, receiver = MessageNumbers(), MessageNumbers()
    first, _ = map(sender.numbered, messages("a", "b", 2))
    receiver.takes(first)
    (tally,) = sender.tallies()
    assert (tally.target, tally.message, tally.number) == ("b", Tally(0, 2), 0)
    assert not list(sender.tallies())
    with raises(ApplianceCorruptionError, "message-lost"):
        receiver.takes(tally)
    assert not receiver.takes(Envelope("a", "b", Tally(0, 1)))


def test_repeated_message_is_passed_over() -> None:
    """Messages that nobody numbers, as those of the coordinator, are all taken."""
    sender, receiver = MessageNumbers(), MessageNumbers()
    first, second = map(sender.numbered, messages("a", "b", 2))
    assert [receiver.takes(each) for each in (first, first, second, first)] == [
        True, False, True, False,
    ]  # fmt: skip
    abort = Envelope("crd-0", "b", Abort(0))
    assert receiver.takes(abort)
    assert receiver.takes(abort)


def test_new_links_begin_with_one() -> None:
    """Both sides restart, and what was lost before is forgotten."""
    sender, receiver = MessageNumbers(), MessageNumbers()
    for each in messages("a", "b", 3):
        receiver.takes(sender.numbered(each))
    sender.restart()
    receiver.restart()
    assert not list(sender.tallies())
    again = sender.numbered(messages("a", "b", 1)[0])
    assert again.number == 1
    assert receiver.takes(again)


def test_roles_of_a_process_have_numbers_of_their_own() -> None:
    """Two senders of one process, and two receivers of another."""
    sender, receiver = MessageNumbers(), MessageNumbers()
    routes = [("a", "c"), ("b", "c"), ("a", "d")]
    sent = [sender.numbered(each) for route in routes for each in messages(*route, 1)]
    assert [each.number for each in sent] == [1, 1, 1]
    assert all(map(receiver.takes, sent))
    assert [(each.source, each.target) for each in sender.tallies()] == routes
