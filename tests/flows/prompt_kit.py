"""What the tests of prompts share: a prompt looked at as the next call would send it, prompts as text, a tool, an answer held up."""

from __future__ import annotations

from pathlib import Path

import trio

from callboard import tool
from callboard.actors.desk import Desk
from callboard.actors.models.model import Completion, Emit, Prompt
from callboard.actors.session.agents.chat import ChatAgent
from callboard.actors.session.prompt.assembly import Assembled
from callboard.actors.session.prompt.preview import preview_turn
from callboard.storage.model.sessions import Session
from callboard.tests.flows.chat_kit import WrittenModel
from callboard.tests.flows.turn_kit import Board

PLACES = {"/research/pricing": "pricing", "/ops/deploy": "deploy", "/ops": "deploy"}
PURPOSES = {"deploy": "Deploys <things>.\n[context: x]", "pricing": "", "desk": "Greets.", "agent": "Echoes."}
GOLDEN = Path(__file__).parent / "golden"


async def looked_at(desk: Desk, agent: ChatAgent, session: Session) -> Assembled:
    """What the agent's model would be told next in a session."""
    turn, _ = await preview_turn(desk, session)
    return await agent.preview(turn)


@tool("pure")
async def look() -> str:
    """Looks."""
    return "looked"


def team(model: WrittenModel | None = None) -> dict[str, ChatAgent]:
    """Three agents that ask one model, with purposes that are not harmless."""
    asked = model or WrittenModel()
    return {
        name: ChatAgent(asked, f"You are the {name}.", tools=[look], purpose=PURPOSES[name])
        for name in ("desk", "deploy", "pricing")
    }


async def furnish(board: Board) -> None:
    """Open sessions of the team's at `PLACES`."""
    for path, agent in PLACES.items():
        await board.open(agent, path=path)


def blocks_of(prompt: Assembled) -> dict[str, str]:
    return {block.name: block.text for block in prompt.blocks}


def as_text(prompt: Assembled) -> str:
    """All parts but the tools (`tools.json` has those), as a golden file has them."""
    return "".join(f"=== {part.name}\n{part.data.decode()}\n" for part in prompt.parts() if part.name != "tools")


class Pause:
    """A model's answer that a test holds up."""

    def __init__(self, answer: Completion) -> None:
        self.begun, self.go_on = trio.Event(), trio.Event()
        self._answer = answer

    async def __call__(self, prompt: Prompt, emit: Emit) -> Completion:
        self.begun.set()
        await self.go_on.wait()
        await emit(self._answer.text)
        return self._answer
