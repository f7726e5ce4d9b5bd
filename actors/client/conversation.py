"""What a person should be shown of a session's events: streamed text as it comes, every answer once, none of a dropped attempt.

Pure: events in, things to show out. Not here: how they are shown, and where the events come from.

Invariant: the text of a turn that was shown and not dropped is its answer; a turn whose beginning was not seen is shown when it ends.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import attrs

from .subscription import LiveEvent


class ShowKind(StrEnum):
    """What there is to show."""

    POST = "post"
    """A message was accepted: `text`, from `label`."""
    TEXT = "text"
    """More of the streamed answer."""
    DROPPED = "dropped"
    """The text shown so far does not count: the turn starts again."""
    RETRY = "retry"
    """The attempt has failed and another one follows: `text` says why. Text shown so far (`streaming`) does not count."""
    ANSWER = "answer"
    """The turn has ended; `text` is what of its answer was not streamed, and `whole` the answer."""
    FAILED = "failed"
    """The turn has failed: `text` says why."""
    GAP = "gap"
    """Events are gone; read the transcript."""


@attrs.frozen
class Show:
    """One thing to show. `message_id` is the message that the turn answers, or the one accepted; `streaming`: text of it is on the screen."""

    kind: ShowKind
    text: str = ""
    message_id: str = ""
    label: str = ""
    role: str = ""
    whole: str = ""
    stopped: bool = False
    streaming: bool = False
    seq: int | None = None


class Conversation:
    """The reader of one session. `running` is the message id of the turn under way, None if there is none."""

    def __init__(self) -> None:
        self.running: str | None = None
        self._attempt: tuple[str, int] | None = None
        self._text = ""

    @property
    def text(self) -> str:
        """What the turn under way has streamed so far."""
        return self._text

    def see(self, event: LiveEvent) -> Show | None:
        """Take the next event; returns what is to be shown of it, if anything."""
        data = event.data
        match event.kind:
            case "message.created":
                return self._post(data)
            case "turn.started" | "attempt.claimed":
                self.running = data["message_id"]
                self._attempt, self._text = (data["turn_id"], data["attempt"]), ""
            case "turn.token" if self._attempt == (data["turn_id"], data["attempt"]):
                self._text += data["text"]
                return Show(ShowKind.TEXT, data["text"], data["message_id"], streaming=True)
            case "attempt.relinquished":
                shown, self._text, self._attempt = self._text, "", None
                if data.get("cause") == "retried":
                    why = f"attempt {data['attempt']} failed: {data.get('detail', '')}"
                    return Show(ShowKind.RETRY, why, data["message_id"], streaming=bool(shown))
                if shown:
                    return Show(ShowKind.DROPPED, message_id=data["message_id"])
            case "turn.completed" | "turn.stopped" | "turn.failed":
                return self._end(event.kind, data)
            case "resync":
                self._attempt, self._text = None, ""
                return Show(ShowKind.GAP)
            case _:
                pass
        return None

    def _post(self, data: dict[str, Any]) -> Show:
        sender = data["sender"]
        label = sender["label"] or sender["id"]
        content = data.get("content", "")
        return Show(ShowKind.POST, content, data["message_id"], label, data["role"], seq=data["seq"])

    def _end(self, kind: str, data: dict[str, Any]) -> Show:
        name = data["message_id"]
        # A message that fails while it waits ends a turn that never ran; the one that runs goes on.
        ours = self._attempt is None or self._attempt[0] == data["turn_id"]
        shown = self._text if ours else ""
        if ours:
            self.running, self._attempt, self._text = None, None, ""
        if kind == "turn.failed":
            why = f"{data['reason']}: {data['error']}" if data.get("error") else str(data["reason"])
            return Show(ShowKind.FAILED, why, name, streaming=bool(shown))
        whole = data.get("content") or ""
        streaming = bool(shown) and whole.startswith(shown)
        rest = whole[len(shown) :] if streaming else whole
        stopped = kind == "turn.stopped"
        return Show(ShowKind.ANSWER, rest, name, whole=whole, stopped=stopped, streaming=streaming, seq=data.get("seq"))
