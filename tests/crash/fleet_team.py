"""The team that each process of a fleet serves: `callboard serve --team fleet_team:team`, with this folder on the module path.

Its agents are those of the other crash tests; `FLEET_SIDE` names the file in which their tools tell what they have really done.
"""

from __future__ import annotations

import os
from pathlib import Path

from fleet_plan import LASTING, PLACES
from worker_agents import Gates, make_agents
from worker_tools import Side

import callboard


async def lasting(turn: callboard.Turn) -> None:
    for part in LASTING:
        await turn.emit(part)
        await turn.sleep(0.1)


AGENTS = {**make_agents(Side(Path(os.environ["FLEET_SIDE"])), Gates(), None), "lasting": lasting}
team = callboard.Team(agents=AGENTS, sessions=PLACES)
