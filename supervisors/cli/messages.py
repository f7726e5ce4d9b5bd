"""The commands on one message: show, requeue, cancel. Not here: who answers (`board`), listings.

Invariant: what a command on a message is refused for names the state that the message is in, and what can be done instead.
"""

from __future__ import annotations

from typing import Final

from ...storage.model.errors import IllegalMove, InvalidField
from ...storage.model.ids import check_message_id
from .arguments import Asked
from .asking import ask, wants_json
from .board import Board, Found, Json
from .output import as_json, line, note
from .views import state_of

STAGES: Final = ("accepted", "leased", "surfaced", "committed")
FINAL: Final = ("delivered", "failed")


def inbox_message_command(what: str, message: str, asked: Asked) -> int:
    """Show, requeue or cancel one message. Raises `InvalidField` for what can't be a message's id."""
    check_message_id(message, "message")

    async def question(found: Found) -> Json:
        match what:
            case "show":
                return await found.board.message(message)
            case "requeue":
                return await found.board.requeue(message)
            case "cancel":
                return await _cancel(found.board, message, asked)
            case _:
                raise InvalidField(f"there is no inbox command {what!r}")

    answer = ask(asked, question)
    if wants_json(asked):
        as_json(answer)
        return 0
    match what:
        case "show":
            _show(answer)
        case "requeue":
            _requeued(answer, asked)
        case _:
            line(f"{answer['message_id']}: {state_of(answer)}")
    return 0


async def _cancel(board: Board, message: str, asked: Asked) -> Json:
    try:
        return await board.cancel(message)
    except IllegalMove:
        found = await board.message(message)
        match found["status"]:
            case "processing":
                stop = asked.command(f"sessions stop {found['session']}")
                raise IllegalMove(f"{message} is part of a running turn; to stop that: {stop}") from None
            case "failed":
                again = asked.command(f"inbox requeue {message}")
                raise IllegalMove(
                    f"{message} is {state_of(found)} already, and nothing of it waits; to run it again: {again}"
                ) from None
            case "delivered":
                raise IllegalMove(f"{message} is {state_of(found)} already, and nothing of it waits") from None
            case _:
                raise


def _requeued(receipt: Json, asked: Asked) -> None:
    name, status = receipt["message_id"], receipt["status"]
    if receipt["created"]:
        line(f"accepted again as {name} ({status})")
        return
    line(f"already requeued as {name} ({status})")
    if status in FINAL:
        note(f"to run that one again: {asked.command(f'inbox requeue {name}')}")


def _show(message: Json) -> None:
    line(f"{message['message_id']} ({message['id']}) to {message['session']}: {state_of(message)}")
    for stage in STAGES:
        if stage in message["stages"]:
            line(f"  {stage:<10} {message['stages'][stage]}")
    if "steered_round" in message:
        line(f"  steered    into {message['turn_id']}, after its model round {message['steered_round']}")
    line(f"  attempts   {message['attempts']} of {message['max_attempts']} failed, {message['takeovers']} lost")
    for attempt in message["history"]:
        detail = f": {attempt['detail']}" if attempt.get("detail") else ""
        line(f"  attempt {attempt['attempt']}  {attempt['at']}  {attempt['ending']}{detail}")
    if message.get("last_error"):
        line(f"  last error {message['last_error']}")
