"""The transcript as a model reads it: each message followed by its answer. Lives here: order, pairs, headers. Not here: how much (`compaction`).

Invariant: the first line of a message is in brackets only if it is a header of ours, so content that imitates one stays content (SES-9);
and the same rows give the same bytes on any worker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

from ....storage.model.sessions import Entry
from ..attribution import Attributed, attribute_entry
from .blocks import clean

_POST: Final = "[post by a member]"

ChatMessage = dict[str, Any]
Group = list[Entry]
"""Entries that belong together: messages, then what was answered to them."""


def paired(entries: Iterable[Entry]) -> list[Group]:
    """Entries in groups that belong together, oldest first.

    A message without an answer of its own was carried into the turn of the next, or taken into that which ran when it came.
    """
    asked: list[Entry] = []
    answers: dict[int, Entry] = {}
    by_id: dict[str, list[int]] = defaultdict(list)
    for entry in sorted(entries, key=lambda entry: entry.seq):
        if entry.role != "assistant":
            asked.append(entry)
            by_id[entry.message_id or ""].append(entry.seq)
        else:
            # Two senders may use one message id; their turns ran in the order of their messages.
            unanswered = [seq for seq in by_id[entry.in_reply_to or ""] if seq not in answers]
            if unanswered:
                answers[unanswered[0]] = entry
    groups: list[Group] = []
    waiting: Group = []
    answered = 0
    for entry in asked:
        if entry.seq in answers:
            groups.append([*waiting, entry, answers[entry.seq]])
            waiting, answered = [], answers[entry.seq].seq
        elif entry.seq < answered:
            groups[-1].insert(-1, entry)
        else:
            waiting.append(entry)
    return [*groups, *([entry] for entry in waiting)]


def said(message: Attributed) -> ChatMessage:
    """A message to the model, under its header."""
    if not message.header and message.content.lstrip().startswith("["):
        message = Attributed(_POST, message.content)
    return {"role": "user", "content": str(message)}


def shown(entry: Entry) -> ChatMessage:
    """An entry to the model."""
    if entry.role == "assistant":
        return {"role": "assistant", "content": entry.content}
    return said(attribute_entry(entry))


def who(entry: Entry) -> str:
    """Whose an entry is, on one line."""
    if entry.role == "assistant":
        return "you"
    return clean(attribute_entry(entry).header.strip("[]")) or "a member"
