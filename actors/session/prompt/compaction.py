"""How much of the past a model is told: the newest of the transcript as it is, what is older in short (CTX-3, "compacted view").

Lives here: where the cut is, the short form by rule. Not here: the one by a model (`summary`), order and headers (`history`).

Invariants: a message is never told without its answer, nor an answer without what it answers; what is neither told nor summed
up is said to be left out. The cut and the rule's text are pure functions of rows. The cut moves seldom and then far, as each move makes
everything behind it new to whoever runs the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from ....storage.model.limits import PAGE_LIMIT
from ....storage.model.states import OPEN, Status
from ..attribution import Attributed
from .blocks import clean
from .history import ChatMessage, Group, paired, said, shown, who
from .summary import SHORT_CHARS, closed, last, summed_up

if TYPE_CHECKING:
    from ....storage.model.sessions import Entry
    from ...models.model import Model
    from ..turn import Turn

ENTRIES_MOST: Final = PAGE_LIMIT
"""How many of the newest entries may be told, however short they are."""
BEHIND_MOST: Final = 2 * PAGE_LIMIT
"""How many entries are read at a time of those that wait to be summed up."""
STRIDE: Final = 50
"""Where the entries begin that are looked at moves by so many."""
LINE_CHARS: Final = 120
NOTICE: Final = "[system notice]"
LEFT_OUT: Final = "Earlier messages of this session are left out."
SHORTENED: Final = "Earlier messages of this session, each cut to its beginning:"
SUMMED_UP: Final = "Summary of the earlier messages of this session:"


async def history(turn: Turn, characters: int, model: Model | None = None, *, ask: bool = True) -> list[ChatMessage]:
    """What committed turns of the session have taken in and answered, oldest first.

    Of about `characters` the newest is told as it is, the rest in short: each message summed up by `model` once, oldest first and a bounded
    portion in a turn, and from then on by what it made of them; what it has not come to yet, or without a model, or where it fails or must
    not be asked (`ask`), by rule.
    """
    reads, session = turn.desk.store.reads, turn.session.id
    known = await reads.summary(turn.scope, session) if model is not None else None
    told_by = 0 if known is None else known.upto
    newest = (await reads.session(turn.scope, session)).newest_seq
    first = max(told_by, (newest - ENTRIES_MOST) // STRIDE * STRIDE)
    entries = await reads.transcript(turn.scope, session, after=first, limit=ENTRIES_MOST + STRIDE)
    groups = _told(entries)
    start = cut(groups, characters)
    old, missing = groups[:start], first > told_by
    if model is not None:
        behind = await reads.transcript(turn.scope, session, after=told_by, limit=BEHIND_MOST) if missing else []
        missing = _missing(behind, told_by, first)
        made = None
        if ask:
            ready = _behind(behind, first) if missing else closed(old, entries)
            made = await summed_up(turn, model, known, ready)
        if made is not None:
            known, missing = made, _missing(behind, made.upto, first)
            old = [group for group in old if last([group]) > made.upto]
    told = [] if known is None else [said(Attributed(NOTICE, f"{SUMMED_UP}\n{known.text}"))]
    if old or missing:
        told.append(said(Attributed(NOTICE, in_short(old, min(characters // 4, SHORT_CHARS), more=missing))))
    return [*told, *(shown(entry) for group in groups[start:] for entry in group)]


def cut(groups: Sequence[Group], characters: int) -> int:
    """How many of the oldest groups are told in short. Groups that come later leave it as it is, until what is told would be too much:
    then it moves to where half of that is left.
    """
    weights = [
        max(sum(len(entry.content) for entry in group), len(group) * characters // ENTRIES_MOST) for group in groups
    ]
    start = size = 0
    for end, weight in enumerate(weights, start=1):
        size += weight
        if size > characters:
            while start < end and size > characters // 2:
                size -= weights[start]
                start += 1
    return start


def in_short(groups: Sequence[Group], room: int, *, more: bool) -> str:
    """The beginning of each message, the newest of them within `room` characters. `more`: there are others before them."""
    lines: list[str] = []
    for entry in reversed([entry for group in groups for entry in group]):
        line = f"- {who(entry)}: {clean(entry.content.strip().partition(chr(10))[0], LINE_CHARS)}"
        room -= len(line) + 1
        if room < 0:
            more = True
            break
        lines.append(line)
    if not lines:
        return LEFT_OUT
    return "\n".join([SHORTENED, *(["- …"] if more else []), *reversed(lines)])


def _behind(entries: Sequence[Entry], first: int) -> Sequence[Group]:
    """The groups up to `first` of entries that begin where the summary ends."""
    groups = closed(_told(entries), entries)
    if len(entries) < BEHIND_MOST:
        return list(takewhile(lambda group: last([group]) <= first, groups))
    # The answers to the last of them may not be among them: those are there for their answers alone.
    sure = min(first, entries[-PAGE_LIMIT].seq)
    return list(takewhile(lambda group: last([group]) <= sure, groups)) or [g for g in groups[:1] if last([g]) <= first]


def _missing(entries: Sequence[Entry], upto: int, first: int) -> bool:
    """Whether a message stands between the end of the summary and the first that is looked at; `entries` as for `_behind`."""
    if len(entries) == BEHIND_MOST and entries[-1].seq < first:
        return True
    told = (Status.DELIVERED, *OPEN)
    return any(upto < entry.seq <= first and entry.role != "assistant" and entry.state in told for entry in entries)


def _told(entries: Iterable[Entry]) -> list[Group]:
    return paired(entry for entry in entries if entry.state == Status.DELIVERED)


def without_old_results(messages: Sequence[ChatMessage], characters: int) -> list[ChatMessage]:
    """A turn's own messages with about `characters` of tools' results: the oldest beyond give way to a mark; no call loses its result.

    A pure function that only ever takes more away as messages come, and takes it in portions; results that the model has not seen yet
    go only if they are too much by themselves, the last one never.
    """
    found = list(messages)
    whole: list[int] = []
    size = seen = 0
    for place, message in enumerate(messages):
        if message["role"] == "tool":
            whole.append(place)
            size += len(message["content"])
        if message["role"] != "tool" or (place + 1 < len(messages) and messages[place + 1]["role"] == "tool"):
            continue  # looked at when a round has all its results
        most = characters // 2 if size > characters else characters
        while len(whole) > 1 and size > (most if whole[0] < seen else characters):
            gone = whole.pop(0)
            length = len(found[gone]["content"])
            mark = f"[result left out: {length} characters]"
            found[gone] = {**found[gone], "content": mark}
            size -= length
        seen = place + 1
    return found
