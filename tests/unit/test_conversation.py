"""What a reader of a session is shown: every answer once, nothing of a dropped attempt. Pure: events in, things to show out."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.actors.client import Conversation, LiveEvent, Show, ShowKind


class Reader:
    """Feeds a conversation; `shown` is what came out, as (kind, text)."""

    def __init__(self) -> None:
        self.conversation = Conversation()
        self.shown: list[Show] = []
        self._id = 0

    def see(self, what: str, message: str = "m-1", attempt: int = 1, **data: Any) -> Show | None:
        self._id += 1
        about = {"turn_id": f"turn-of-{message}", "message_id": message, "attempt": attempt, **data}
        show = self.conversation.see(LiveEvent("ses", self._id, what, about))
        if show is not None:
            self.shown.append(show)
        return show

    def start(self, message: str = "m-1", attempt: int = 1) -> None:
        if attempt == 1:
            self.see("turn.started", message)
        self.see("attempt.claimed", message, attempt)

    @property
    def text(self) -> list[tuple[str, str]]:
        return [(str(show.kind), show.text) for show in self.shown]


@pytest.fixture
def reader() -> Reader:
    return Reader()


def test_a_streamed_answer_is_not_shown_again(reader: Reader) -> None:
    reader.start()
    reader.see("turn.token", text="1 ")
    reader.see("turn.token", text="2")
    end = reader.see("turn.completed", outcome="answered", seq=2, content="1 2")
    assert reader.text == [("text", "1 "), ("text", "2"), ("answer", "")]
    assert end is not None
    assert (end.whole, end.streaming, end.seq) == ("1 2", True, 2)


@pytest.mark.parametrize("streamed", [False, True])
def test_an_attempt_that_failed_is_told_while_it_waits_for_the_next_one(reader: Reader, streamed: bool) -> None:
    reader.start()
    if streamed:
        reader.see("turn.token", text="half")
    show = reader.see("attempt.relinquished", cause="retried", detail="RuntimeError: no", retry_at=5.0)
    assert show == Show(ShowKind.RETRY, "attempt 1 failed: RuntimeError: no", "m-1", streaming=streamed)
    reader.start(attempt=2)
    reader.see("turn.completed", attempt=2, outcome="answered", seq=2, content="whole")
    assert reader.text[-1] == ("answer", "whole")


def test_what_was_not_streamed_of_an_answer_is_shown_at_its_end(reader: Reader) -> None:
    reader.start()
    reader.see("turn.token", text="1 ")
    reader.see("turn.completed", outcome="answered", seq=2, content="1 2 3")
    assert reader.text[-1] == ("answer", "2 3")


def test_an_answer_that_differs_from_what_was_streamed_is_shown_whole(reader: Reader) -> None:
    reader.start()
    reader.see("turn.token", text="thinking")
    end = reader.see("turn.completed", outcome="answered", seq=2, content="42")
    assert reader.text[-1] == ("answer", "42")
    assert end is not None
    assert not end.streaming


def test_the_text_of_an_attempt_that_was_given_up_is_dropped(reader: Reader) -> None:
    reader.start()
    reader.see("turn.token", text="1 2")
    reader.see("attempt.relinquished", cause="takeover")
    assert reader.conversation.running == "m-1"
    reader.start(attempt=2)
    reader.see("turn.token", attempt=1, text="late")
    reader.see("turn.token", attempt=2, text="1 ")
    reader.see("turn.token", attempt=2, text="2 3")
    reader.see("turn.completed", attempt=2, outcome="answered", seq=2, content="1 2 3")
    assert reader.text == [("text", "1 2"), ("dropped", ""), ("text", "1 "), ("text", "2 3"), ("answer", "")]


def test_text_that_was_dropped_is_shown_again_if_it_becomes_the_answer(reader: Reader) -> None:
    reader.start()
    reader.see("turn.token", text="1 2")
    reader.see("attempt.relinquished", cause="takeover")
    reader.see("turn.stopped", attempt=2, outcome="stopped", seq=2, content="1 2")
    assert reader.text == [("text", "1 2"), ("dropped", ""), ("answer", "1 2")]


def test_an_attempt_without_text_is_given_up_in_silence(reader: Reader) -> None:
    reader.start()
    reader.see("attempt.relinquished", cause="handed_back")
    reader.start(attempt=2)
    assert reader.shown == []


def test_a_turn_whose_beginning_was_not_seen_is_shown_when_it_ends(reader: Reader) -> None:
    reader.see("turn.token", text="the rest of it")
    reader.see("turn.completed", outcome="answered", seq=2, content="all and the rest of it")
    assert reader.text == [("answer", "all and the rest of it")]


def test_a_stopped_turn_keeps_its_text(reader: Reader) -> None:
    reader.start()
    reader.see("turn.token", text="1 2")
    end = reader.see("turn.stopped", outcome="stopped", seq=2, content="1 2")
    assert end is not None
    assert (end.kind, end.text, end.stopped) == (ShowKind.ANSWER, "", True)
    assert reader.conversation.running is None


def test_a_turn_without_a_visible_reply_has_no_text(reader: Reader) -> None:
    reader.start()
    end = reader.see("turn.completed", outcome="no_visible_reply", seq=None)
    assert end is not None
    assert (end.text, end.whole, end.seq) == ("", "", None)


def test_a_failed_turn_says_why(reader: Reader) -> None:
    reader.start()
    reader.see("turn.failed", reason="retries_used", error="RuntimeError: boom")
    reader.see("turn.failed", "m-2", reason="cancelled")
    assert reader.text == [("failed", "retries_used: RuntimeError: boom"), ("failed", "cancelled")]


def test_a_message_that_fails_while_it_waits_disturbs_no_running_turn(reader: Reader) -> None:
    reader.start()
    reader.see("turn.token", text="1 ")
    reader.see("turn.failed", "m-2", reason="cancelled")
    assert reader.conversation.running == "m-1"
    reader.see("turn.token", text="2")
    reader.see("turn.completed", outcome="answered", seq=2, content="1 2")
    assert reader.text == [("text", "1 "), ("failed", "cancelled"), ("text", "2"), ("answer", "")]


def test_a_post_has_its_sender(reader: Reader) -> None:
    sender = {"id": "ses_1", "label": "", "kind": "session"}
    show = reader.see(
        "message.created", id="msg_1", kind="agent_message", role="user", seq=3, sender=sender, content="hi"
    )
    assert show == Show(ShowKind.POST, "hi", "m-1", "ses_1", "user", seq=3)


def test_after_a_gap_nothing_is_taken_for_granted(reader: Reader) -> None:
    reader.start()
    reader.see("turn.token", text="1 ")
    assert reader.see("resync", after=9, oldest=10) is not None
    reader.see("turn.token", text="2")
    reader.see("turn.completed", outcome="answered", seq=2, content="1 2")
    assert reader.text == [("text", "1 "), ("gap", ""), ("answer", "1 2")]


def test_kinds_that_it_does_not_know_are_left_aside(reader: Reader) -> None:
    for kind in ("model.request", "tool.call", "tool.result", "turn.waiting", "something.new"):
        assert reader.see(kind) is None
