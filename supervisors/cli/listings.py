"""The commands on sessions, and listing the inbox: ask, then print for people or as JSON.

Not here: who answers (`board`), commands on one message (`messages`). Invariant: `--json` prints exactly what the HTTP contract answers.
"""

from __future__ import annotations

import sys

from ...storage.model.errors import InvalidField
from ..settings import load_settings
from .arguments import Asked, Paged
from .asking import ask, wants_json
from .board import Found, Json
from .output import as_json, line, more, note, one_line, table
from .views import state_of, who


def sessions_list_command(path: str | None, status: str, asked: Paged) -> int:
    """Print sessions."""

    async def question(found: Found) -> Json:
        return await found.board.sessions(path=path, status=status, limit=asked.limit, cursor=asked.cursor)

    answer = ask(asked, question)
    if wants_json(asked):
        as_json(answer)
        return 0
    rows = [
        (s["path"] or "-", s["agent"], s["kind"], s["status"], s["updated"], s["id"], s["title"] or "-")
        for s in answer["sessions"]
    ]
    table(("PATH", "AGENT", "KIND", "STATUS", "UPDATED", "ID", "TITLE"), rows)
    more(answer)
    return 0


def sessions_read_command(session: str, after: int, asked: Asked) -> int:
    """Print a transcript."""

    async def question(found: Found) -> Json:
        return await found.board.transcript(session, after=after)

    answer = ask(asked, question)
    if wants_json(asked):
        as_json(answer)
        return 0
    for entry in answer["entries"]:
        sender = one_line(who(entry))
        what = "" if entry["role"] == "user" else f" ({entry['role']})"
        state = "" if entry["state"] == "delivered" else f" [{entry['state']}]"
        line(f"{entry['seq']} {sender}{what}{state}: {entry['content']}")
    return 0


def sessions_send_command(session: str, text: str, message_id: str | None, asked: Asked) -> int:
    """Post a message and print its receipt."""
    content = _typed() if text == "-" else text

    async def question(found: Found) -> tuple[Json, bool]:
        return await found.board.send(session, content, message_id), found.server is not None

    receipt, serving = ask(asked, question)
    if wants_json(asked):
        as_json(receipt)
    else:
        again = "" if receipt["created"] else ", as it was before"
        line(f"accepted as {receipt['message_id']}{again} ({receipt['status']})")
    if not serving and receipt["status"] == "pending":
        waits = f"it waits for the next `{asked.command('serve')}`"
        shared = load_settings(asked.settings).on_server
        note(f"no server runs here: {'a process that serves this store takes it' if shared else waits}")
    return 0


def sessions_stop_command(session: str, drop_queued: bool, asked: Asked) -> int:
    """Stop a session's turn."""

    async def question(found: Found) -> Json:
        return await found.board.stop(session, drop_queued=drop_queued)

    answer = ask(asked, question)
    _print(answer, str(answer["status"]), asked)
    return 0


def inbox_list_command(
    target: str | None, status: str | None, peer: str | None, before: str | None, asked: Paged
) -> int:
    """Print messages."""

    async def question(found: Found) -> Json:
        return await found.board.inbox(
            target=target, status=status, peer=peer, before=before, limit=asked.limit, cursor=asked.cursor
        )

    answer = ask(asked, question)
    if wants_json(asked):
        as_json(answer)
        return 0
    rows = [
        (m["message_id"], m["stages"]["accepted"], state_of(m), who(m), m["session"], m["content"])
        for m in answer["messages"]
    ]
    table(("MESSAGE", "ACCEPTED", "STATE", "FROM", "TO", "CONTENT"), rows)
    more(answer)
    return 0


def _typed() -> str:
    """All of standard input."""
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise InvalidField("standard input is not UTF-8", path="text") from None
    except (OSError, ValueError) as error:
        raise InvalidField(f"standard input can't be read: {error}", path="text") from None


def _print(answer: Json, text: str, asked: Asked) -> None:
    if wants_json(asked):
        as_json(answer)
    else:
        line(text)
