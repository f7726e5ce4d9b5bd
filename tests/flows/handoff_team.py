"""A team whose front desk hands over and then works on until it is let go: `--team callboard.tests.flows.handoff_team:team`."""

from __future__ import annotations

from pathlib import Path

import trio

import callboard
from callboard import Turn

LET_GO = "let-go"
"""A file in the server's folder: while it is missing, a turn does not end."""


async def front_desk(turn: Turn) -> str:
    """Hands over to each path of the message, one after the other."""
    for path in turn.text.split():
        await turn.tools.connect_user(path)
    while not await trio.Path(Path.cwd() / LET_GO).exists():  # noqa: ASYNC110 (nobody tells of a file)
        await trio.sleep(0.02)
    return "Taking you there."


async def deploy(turn: Turn) -> str:
    return f"deploy heard {turn.text}"


team = callboard.Team(
    agents={"front-desk": front_desk, "deploy": deploy},
    sessions={"/ops/deploy": "deploy", "/research/pricing": "deploy"},
)
