"""Change hints in memory: each watcher is told of its own recipient, for as long as it watches."""

from __future__ import annotations

import pytest

from callboard.storage.changes import Aspect, Changes

DUE, EVENTS, CONTROL = Aspect.DUE, Aspect.EVENTS, Aspect.CONTROL


class Ear:
    def __init__(self) -> None:
        self.heard: list[int] = []

    def hear(self, aspect: int) -> None:
        self.heard.append(aspect)


def test_aspects_can_be_told_together_and_apart() -> None:
    assert len({DUE, EVENTS, CONTROL, DUE | EVENTS, DUE | CONTROL, EVENTS | CONTROL, DUE | EVENTS | CONTROL}) == 7


def test_a_watcher_hears_of_its_recipient_alone() -> None:
    changes, one, two, everybody = Changes(), Ear(), Ear(), Ear()
    with (
        changes.watch("session:1", one.hear),
        changes.watch("session:2", two.hear),
        changes.watch(None, everybody.hear),
    ):
        changes.publish({"session:1": DUE, "session:3": CONTROL})
        changes.publish({"session:2": EVENTS})
    assert (one.heard, two.heard, everybody.heard) == ([DUE], [EVENTS], [DUE | CONTROL, EVENTS])


def test_who_watches_everybody_hears_once_a_batch_and_not_of_nothing() -> None:
    changes, ear = Changes(), Ear()
    with changes.watch(None, ear.hear):
        changes.publish({})
        changes.publish({f"session:{n}": EVENTS for n in range(100)})
    assert ear.heard == [EVENTS]


def test_nobody_hears_after_the_block_however_it_ends() -> None:
    changes, ear = Changes(), Ear()
    for recipient in ("session:1", None):
        with pytest.raises(KeyError), changes.watch(recipient, ear.hear):
            raise KeyError
    changes.publish({"session:1": DUE})
    assert ear.heard == []


def test_several_watch_one_recipient_and_leave_one_by_one() -> None:
    changes, one, two = Changes(), Ear(), Ear()
    with changes.watch("session:1", one.hear):
        with changes.watch("session:1", two.hear):
            changes.publish({"session:1": DUE})
        changes.publish({"session:1": EVENTS})
    assert (one.heard, two.heard) == ([DUE, EVENTS], [DUE])


@pytest.mark.parametrize("recipient", ["session:1", None])
def test_one_callback_may_watch_twice_and_hears_until_the_last_block_ends(recipient: str | None) -> None:
    changes, ear = Changes(), Ear()
    with changes.watch(recipient, ear.hear):
        with changes.watch(recipient, ear.hear):
            pass
        changes.publish({"session:1": DUE})
    changes.publish({"session:1": DUE})
    assert ear.heard == [DUE]


def test_a_watcher_may_leave_while_it_is_being_told() -> None:
    changes, last = Changes(), Ear()

    def leave(aspect: int) -> None:
        changes.drop("session:1", leave)
        last.hear(aspect)

    changes.add("session:1", leave)
    changes.add("session:1", last.hear)
    changes.publish({"session:1": DUE})
    changes.publish({"session:1": DUE})
    assert last.heard == [DUE, DUE, DUE]
    changes.drop("session:1", last.hear)


def test_who_looks_after_many_is_told_of_each_that_the_wanted_aspect_is_about() -> None:
    changes, told = Changes(), list[str | None]()
    with changes.watch_each(CONTROL, told.append):
        changes.publish({"session:1": DUE, "session:2": CONTROL | EVENTS, "session:3": CONTROL})
        changes.publish({"session:4": EVENTS})
        assert told == ["session:2", "session:3"]
        changes.publish_all()
    changes.publish({"session:5": CONTROL})
    assert told == ["session:2", "session:3", None]
