"""`callboard prompt`: what a session's model would be told next, and what of that changed since it was last asked.

Lives here: the command as people see it, and its output. Not here: who answers (`board`), making the report (`actors/session/prompt`).
Invariant: `--json` prints exactly what the HTTP contract answers.
"""

from __future__ import annotations

from typing import Any, Final

from cyclopts import App

from .arguments import ASKED, Asked, Flag
from .output import as_json, line

_TURNS: Final = {
    "running": "the turn that runs",
    "next": "the next turn",
    "none": "without a message, as none waits",
}

prompt = App(name="prompt", help="What models are told.")


@prompt.command(name="show")
def prompt_show(session: str, *, diff: Flag = None, asked: Asked = ASKED) -> int:
    """Show what the next call of a session's model would send. Nothing is sent, and no tool is run.

    JSON: {session, agent, turn, request_hash, bytes, parts, diff}.

    Parameters
    ----------
    session
        Path or id.
    diff
        Only what changed since the last call of the server that runs, and how long the part before it is.
    """
    from ...storage.model.errors import NotFound
    from .asking import ask, wants_json
    from .board import Found, Json

    async def question(found: Found) -> tuple[Json, bool]:
        return await found.board.prompt(session), found.server is not None

    answer, serving = ask(asked, question)
    if diff and answer["diff"] is None:
        why = (
            "has asked no model for this session yet"
            if serving
            else "runs here, and only its memory has the last prompt"
        )
        raise NotFound(
            f"there is nothing to compare with: {'the server that answers' if serving else 'no server'} {why}"
        )
    if wants_json(asked):
        as_json(answer)
    elif diff:
        _compare(answer)
    else:
        _show(answer)
    return 0


def _show(answer: dict[str, Any]) -> None:
    line(f"{answer['agent']}, {_TURNS[answer['turn']]}: {answer['bytes']} bytes, {answer['request_hash']}")
    for part in answer["parts"]:
        line(f"--- {part['name']} ({part['bytes']} bytes)")
        line(part["text"])


def _compare(answer: dict[str, Any]) -> None:
    diff = answer["diff"]
    line(
        f"{answer['bytes']} bytes, {diff['bytes']} at the last call; common prefix {diff['common']} bytes ({diff['percent']}%)"
    )
    for change in diff["changed"]:
        line(f"--- {change['part']}, from byte {change['at']}")
        for sign, text in (("-", change["removed"]), ("+", change["added"])):
            if text:
                line(f"{sign} {text}")
    if not diff["changed"]:
        line("nothing changed")
