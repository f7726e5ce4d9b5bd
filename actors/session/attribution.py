"""Who said it: the header that goes with delivered text (SES-9). Pure.

Invariant: the header is a field beside the content, its label one escaped line, so content that imitates a header stays content.
"""

from __future__ import annotations

import attrs

from ...storage.model.addresses import Sender, clean_label
from ...storage.model.messages import NOTICES, Kind
from ...storage.model.sessions import Entry
from ...storage.model.turns import TurnMessage


@attrs.frozen
class Attributed:
    """Delivered text with its header; `str()` puts the header on a line of its own before the content."""

    header: str
    content: str

    def __str__(self) -> str:
        return f"{self.header}\n{self.content}" if self.header else self.content


def attribute(message: TurnMessage) -> Attributed:
    """The header that says who a message is from. A member's own post has none."""
    result = message.kind == Kind.SUBAGENT_RESULT
    return Attributed(_header(message.sender, message.kind in NOTICES, result, message.reply_to), message.content)


def attribute_entry(entry: Entry) -> Attributed:
    """The header of a transcript's entry that is no answer; the same as its message had, but for what that answered."""
    notice = entry.role == "notice"
    return Attributed(_header(entry.sender, notice, notice and entry.sender.kind == "session", None), entry.content)


def _header(sender: Sender, notice: bool, result: bool, reply_to: str | None) -> str:
    label = clean_label(sender.label) or sender.id
    if result:
        return f"[system notice: result of the subagent {label}, {sender.id}]"
    if notice:
        return "[system notice]"
    if sender.kind == "session":
        answer = f", in reply to {reply_to}" if reply_to else ""
        return f"[message from the session {label}, {sender.id}{answer}]"
    if sender.kind == "peer":
        return f"[message from the peer {label}, {sender.id}]"
    return ""
