"""Who said it: the header that goes with delivered text (SES-9). Pure.

Invariant: the header is a field beside the content, its label one escaped line, so content that imitates a header stays content.
"""

from __future__ import annotations

import attrs

from ...storage.model.addresses import clean_label
from ...storage.model.messages import NOTICES, Kind
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
    label = clean_label(message.sender.label) or message.sender.id
    if message.kind == Kind.SUBAGENT_RESULT:
        return Attributed(f"[system notice: result of the subagent {label}, {message.sender.id}]", message.content)
    if message.kind in NOTICES:
        return Attributed("[system notice]", message.content)
    if message.sender.kind == "session":
        answer = f", in reply to {message.reply_to}" if message.reply_to else ""
        return Attributed(f"[message from the session {label}, {message.sender.id}{answer}]", message.content)
    if message.sender.kind == "peer":
        return Attributed(f"[message from the peer {label}, {message.sender.id}]", message.content)
    return Attributed("", message.content)
