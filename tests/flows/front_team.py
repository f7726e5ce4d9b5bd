"""A team that hands over when a test lets it: `--team callboard.tests.flows.front_team:team`. Not here: any judgement."""

from __future__ import annotations

from pathlib import Path

import trio

import callboard
from callboard import Turn
from callboard.actors.namespace.directory import paths_named

ASKED = "take me to "
HAND_OVER, LET_GO = "hand-over", "let-go"
"""Files in the server's folder: while one is missing, a turn waits in front of its handoff, or of its end."""


async def guide(turn: Turn) -> str:
    """`take me to NAME`; `to PATH …`; `late PATH …` waits in front of it, `slow PATH …` behind it, `both PATH …` twice; else it is said back."""
    word, *paths = turn.text.split()
    if turn.text.startswith(ASKED):
        word, paths = "to", await paths_named(turn.desk, turn.scope, turn.text.removeprefix(ASKED))
    if word not in ("to", "late", "slow", "both"):
        return f"{turn.session.path} heard {turn.text}"
    if word in ("late", "both"):
        await there(HAND_OVER)
    for path in paths:
        await turn.tools.connect_user(path)
    if word in ("slow", "both"):
        await there(LET_GO)
    return "Taking you there."


async def there(name: str) -> None:
    while not await trio.Path(Path.cwd() / name).exists():  # noqa: ASYNC110 (nobody tells of a file)
        await trio.sleep(0.02)


team = callboard.Team(
    agents={"guide": guide},
    sessions={"/ops/deploy": "guide", "/ops/deploy/eu": "guide", "/research/pricing": "guide"},
)
