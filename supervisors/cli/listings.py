"""The commands on sessions and on the inbox: ask, then print for people or as JSON.

Not here: who answers (`board`). Invariant: `--json` prints exactly what the HTTP contract answers.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from ...storage.model.errors import InvalidField
from ...storage.model.ids import check_message_id
from .asking import ask, wants_json
from .board import Found, Json
from .output import as_json, line, note, table

Options = Mapping[str, Any]
STAGES: Final = ("accepted", "leased", "surfaced", "committed")


def sessions_list_command(path: str | None, status: str, limit: int, cursor: str | None, options: Options) -> int:
    """Print sessions."""

    async def question(found: Found) -> Json:
        return await found.board.sessions(path=path, status=status, limit=limit, cursor=cursor)

    answer = ask(options, question)
    if wants_json(options):
        as_json(answer)
        return 0
    rows = [
        (s["path"] or "-", s["agent"], s["kind"], s["status"], s["updated"], s["id"], s["title"] or "-")
        for s in answer["sessions"]
    ]
    table(("PATH", "AGENT", "KIND", "STATUS", "UPDATED", "ID", "TITLE"), rows)
    _more(answer)
    return 0


def sessions_read_command(session: str, after: int, options: Options) -> int:
    """Print a transcript."""

    async def question(found: Found) -> Json:
        return await found.board.transcript(session, after=after)

    answer = ask(options, question)
    if wants_json(options):
        as_json(answer)
        return 0
    for entry in answer["entries"]:
        who = _who(entry)
        what = "" if entry["role"] == "user" else f" ({entry['role']})"
        state = "" if entry["state"] == "delivered" else f" [{entry['state']}]"
        line(f"{entry['seq']} {who}{what}{state}: {entry['content']}")
    return 0


def sessions_send_command(session: str, text: str, message_id: str | None, options: Options) -> int:
    """Post a message and print its receipt."""
    content = _typed() if text == "-" else text

    async def question(found: Found) -> tuple[Json, bool]:
        return await found.board.send(session, content, message_id), found.server is not None

    receipt, serving = ask(options, question)
    if wants_json(options):
        as_json(receipt)
    else:
        again = "" if receipt["created"] else ", as it was before"
        line(f"accepted as {receipt['message_id']}{again} ({receipt['status']})")
    if not serving and receipt["status"] == "pending":
        note("no server runs here: it waits for the next `callboard serve`")
    return 0


def sessions_stop_command(session: str, drop_queued: bool, options: Options) -> int:
    """Stop a session's turn."""

    async def question(found: Found) -> Json:
        return await found.board.stop(session, drop_queued=drop_queued)

    answer = ask(options, question)
    _print(answer, str(answer["status"]), options)
    return 0


def inbox_list_command(
    target: str | None,
    status: str | None,
    peer: str | None,
    before: str | None,
    limit: int,
    cursor: str | None,
    options: Options,
) -> int:
    """Print messages."""

    async def question(found: Found) -> Json:
        return await found.board.inbox(
            target=target, status=status, peer=peer, before=before, limit=limit, cursor=cursor
        )

    answer = ask(options, question)
    if wants_json(options):
        as_json(answer)
        return 0
    rows = [
        (m["message_id"], m["stages"]["accepted"], _state(m), _who(m), m["session"], m["content"])
        for m in answer["messages"]
    ]
    table(("MESSAGE", "ACCEPTED", "STATE", "FROM", "TO", "CONTENT"), rows)
    _more(answer)
    return 0


def inbox_message_command(what: str, message: str, options: Options) -> int:
    """Show, requeue or cancel one message. Raises `InvalidField` for what can't be a message's id."""
    check_message_id(message, "message")

    async def question(found: Found) -> Json:
        match what:
            case "show":
                return await found.board.message(message)
            case "requeue":
                return await found.board.requeue(message)
            case "cancel":
                return await found.board.cancel(message)
            case _:
                raise InvalidField(f"there is no inbox command {what!r}")

    answer = ask(options, question)
    match what:
        case "show" if not wants_json(options):
            _show(answer)
        case "requeue":
            _print(answer, f"accepted again as {answer['message_id']} ({answer['status']})", options)
        case _:
            _print(answer, f"{answer['message_id']}: {_state(answer)}", options)
    return 0


def _typed() -> str:
    """All of standard input."""
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise InvalidField("standard input is not UTF-8", path="text") from None
    except (OSError, ValueError) as error:
        raise InvalidField(f"standard input can't be read: {error}", path="text") from None


def _show(message: Json) -> None:
    line(f"{message['message_id']} ({message['id']}) to {message['session']}: {_state(message)}")
    for stage in STAGES:
        if stage in message["stages"]:
            line(f"  {stage:<10} {message['stages'][stage]}")
    line(f"  attempts   {message['attempts']} of {message['max_attempts']} failed, {message['takeovers']} lost")
    for attempt in message["history"]:
        detail = f": {attempt['detail']}" if attempt.get("detail") else ""
        line(f"  attempt {attempt['attempt']}  {attempt['at']}  {attempt['ending']}{detail}")
    if message.get("last_error"):
        line(f"  last error {message['last_error']}")


def _who(item: Json) -> str:
    return item["sender"]["label"] or item["sender"]["id"]


def _state(message: Json) -> str:
    why = message.get("reason") or (message.get("outcome") if message["status"] == "delivered" else None)
    return f"{message['status']} ({why})" if why else message["status"]


def _more(answer: Json) -> None:
    if answer["has_more"]:
        note(f"there are more: --cursor {answer['next']}")


def _print(answer: Json, text: str, options: Options) -> None:
    if wants_json(options):
        as_json(answer)
    else:
        line(text)
