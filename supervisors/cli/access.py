"""The commands on members and tokens, and the link to the console: ask, then print for people or as JSON.

Not here: who answers (`board`). Invariant: a secret is printed by the command that makes it and by no other.
"""

from __future__ import annotations

from ...storage.model.errors import NotFound
from .arguments import Asked, Paged
from .asking import ask, wants_json
from .board import Found, Json
from .output import as_json, line, more, note, table


def member_add_command(name: str, project: str | None, asked: Asked) -> int:
    """Give a member a project."""

    async def question(found: Found) -> Json:
        return await found.board.add_member(name, project)

    return _tell_member(ask(asked, question), asked)


def member_suspend_command(name: str, suspended: bool, asked: Asked) -> int:
    """Suspend a member, or lift it."""

    async def question(found: Found) -> Json:
        return await found.board.suspend_member(name, suspended=suspended)

    return _tell_member(ask(asked, question), asked)


def member_list_command(asked: Paged) -> int:
    """Print members."""

    async def question(found: Found) -> Json:
        return await found.board.members(limit=asked.limit, cursor=asked.cursor)

    answer = ask(asked, question)
    if wants_json(asked):
        as_json(answer)
        return 0
    rows = [(m["name"], m["suspended"] or "-", m["created"], ", ".join(m["projects"])) for m in answer["members"]]
    table(("NAME", "SUSPENDED", "CREATED", "PROJECTS"), rows)
    more(answer)
    return 0


def token_create_command(member: str | None, project: str | None, label: str, asked: Asked) -> int:
    """Make a token and print its secret."""

    async def question(found: Found) -> Json:
        return await found.board.create_token(member, project, label)

    made = ask(asked, question)
    if wants_json(asked):
        as_json({"token": made["token"], "id": made["id"]})
    else:
        line(made["token"])
        note(f"its id is {made['id']}; it is not shown again")
    return 0


def token_list_command(asked: Paged) -> int:
    """Print tokens and cookies."""

    async def question(found: Found) -> Json:
        return await found.board.tokens(limit=asked.limit, cursor=asked.cursor)

    answer = ask(asked, question)
    if wants_json(asked):
        as_json(answer)
        return 0
    rows = [
        (
            t["id"],
            t["carrier"],
            t.get("member") or t["kind"],
            t.get("project", "-"),
            t["created"],
            t.get("used", "-"),
            _state(t),
            t["label"] or "-",
        )
        for t in answer["tokens"]
    ]
    table(("ID", "CARRIER", "FOR", "PROJECT", "CREATED", "USED", "STATE", "LABEL"), rows)
    more(answer)
    return 0


def token_revoke_command(id: str, asked: Asked) -> int:
    """Make a token good for nothing."""

    async def question(found: Found) -> Json:
        return await found.board.revoke_token(id)

    gone = ask(asked, question)
    if wants_json(asked):
        as_json(gone)
    else:
        line(f"{gone['id']}: {_state(gone)}")
    return 0


def console_command(member: str | None, asked: Asked) -> int:
    """Print a link to the console. Raises `NotFound` if no server runs."""

    async def question(found: Found) -> tuple[str, str]:
        if found.server is None:
            raise NotFound(f"no server runs here that could show a console; start one: {asked.command('serve')}")
        ticket = await found.board.console_ticket(member)
        return f"{found.server.url}/?ticket={ticket['ticket']}", ticket["expires"]

    link, expires = ask(asked, question)
    if wants_json(asked):
        as_json({"console": link, "expires": expires})
    else:
        line(link)
    return 0


def _tell_member(member: Json, asked: Asked) -> int:
    if wants_json(asked):
        as_json(member)
    else:
        state = f"suspended since {member['suspended']}" if member["suspended"] else ", ".join(member["projects"])
        line(f"{member['name']}: {state}")
    return 0


def _state(token: Json) -> str:
    return f"revoked {token['revoked']}" if "revoked" in token else f"until {token.get('expires', 'revoked')}"
