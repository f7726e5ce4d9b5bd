"""The transcript as a model reads it: each message followed by its answer, the newest that fit. Lives here: choosing and ordering.

Invariant: the first line of a message is in brackets only if it is a header of ours, so content that imitates one stays content (SES-9);
and the same rows give the same bytes on any worker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

from ....storage.model.limits import PAGE_LIMIT
from ....storage.model.sessions import Entry
from ....storage.model.states import Status
from ..attribution import Attributed, attribute_entry
from ..turn import Turn

ENTRIES_MOST: Final = PAGE_LIMIT
"""How many of the newest entries are looked at."""
LEFT_OUT: Final = Attributed("[system notice]", "Earlier messages of this session are left out.")
_POST: Final = "[post by a member]"

ChatMessage = dict[str, Any]


async def history(turn: Turn, characters: int) -> list[ChatMessage]:
    """What committed turns of the session have taken in and answered, within `characters`, oldest first."""
    reads = turn.desk.store.reads
    newest = (await reads.session(turn.scope, turn.session.id)).newest_seq
    after = max(0, newest - ENTRIES_MOST)
    entries = await reads.transcript(turn.scope, turn.session.id, after=after, limit=ENTRIES_MOST)
    groups = paired([entry for entry in entries if entry.state == Status.DELIVERED])
    kept: list[list[ChatMessage]] = []
    room = characters
    for group in reversed(groups):
        messages = [_shown(entry) for entry in group]
        room -= sum(len(message["content"]) for message in messages)
        if room < 0:
            break
        kept.append(messages)
    told = [message for messages in reversed(kept) for message in messages]
    return told if len(kept) == len(groups) and after == 0 else [said(LEFT_OUT), *told]


def paired(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Entries in groups that belong together: messages, then what was answered to them.

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
    groups: list[list[Entry]] = []
    waiting: list[Entry] = []
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


def _shown(entry: Entry) -> ChatMessage:
    if entry.role == "assistant":
        return {"role": "assistant", "content": entry.content}
    return said(attribute_entry(entry))
