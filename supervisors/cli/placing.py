"""What the commands on paths and rules do: ask, then print for people or as JSON. Not here: their options (`places`), who answers (`board`)."""

from __future__ import annotations

from ...actors.namespace.paths import drawn
from .arguments import Asked
from .asking import ask, wants_json
from .board import Found, Json
from .output import as_json, line, one_line, table


def sessions_tree_command(asked: Asked) -> int:
    """Print all sessions that have a path, as a tree."""

    async def question(found: Found) -> list[Json]:
        entries: list[Json] = []
        cursor: str | None = None
        while True:
            page = await found.board.directory(cursor)
            entries += page["entries"]
            cursor = page["next"]
            if cursor is None:
                return entries

    entries = ask(asked, question)
    if wants_json(asked):
        as_json({"entries": entries})
    else:
        for text in drawn({entry["path"]: _told(entry) for entry in entries}):
            line(text)
    return 0


def sessions_rename_command(session: str, path: str | None, title: str | None, asked: Asked) -> int:
    """Give a session another path, another title, or both."""

    async def question(found: Found) -> Json:
        return await found.board.rename(session, path, title)

    changed = ask(asked, question)
    if wants_json(asked):
        as_json(changed)
    else:
        line(f"{changed['path'] or changed['id']}: {one_line(changed['title']) or '-'}")
    return 0


def policy_list_command(project: str | None, asked: Asked) -> int:
    """Print the rules of a project."""

    async def question(found: Found) -> Json:
        return await found.board.policy(project)

    return _tell(ask(asked, question), asked)


def policy_set_command(rule: Json, project: str | None, asked: Asked) -> int:
    """Set what is said at a prefix, and print all rules."""

    async def question(found: Found) -> Json:
        return await found.board.set_policy(rule, project)

    return _tell(ask(asked, question), asked)


def _told(entry: Json) -> str:
    confirm = " (asks first)" if entry["confirm"] else ""
    title = one_line(entry["title"])
    return f"{entry['agent']}{confirm}  {title}".rstrip()


def _tell(rules: Json, asked: Asked) -> int:
    if wants_json(asked):
        as_json(rules)
        return 0
    names = ("edge", "agents", "handoff", "confirm")
    rows = [(rule["prefix"], *(_word(rule.get(name)) for name in names)) for rule in rules["rules"]]
    rows.append(("(project)", *(_word(rules["project"][name]) for name in names)))
    table(("PREFIX", "EDGE", "AGENTS MAY", "HANDOFF", "CONFIRM"), rows)
    return 0


def _word(value: str | bool | None) -> str:
    return "-" if value is None else value if isinstance(value, str) else "yes" if value else "no"
