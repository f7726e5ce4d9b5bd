"""A front desk that hands invoices on to billing: two agents, one durable store, one program.

Billing answers by a message of its own, so the question is answered in two turns of the desk.
"""

import tempfile
from pathlib import Path

import trio

import callboard
from callboard import Agent, Turn


class FrontDesk(Agent):
    purpose = "Greets people and takes them to the right desk."

    async def run(self, turn: Turn) -> str | None:
        if turn.message.reply_to is not None:
            return f"Billing says: {turn.text}"
        if "invoice" in turn.text:
            await turn.tools.agent_send("/billing", f"Please look at: {turn.text}")
            return "I asked billing; their answer will come here."
        return f"You said: {turn.text}"


async def billing(turn: Turn) -> None:
    """A plain function is an agent too."""
    await turn.tools.agent_send(turn.message.sender, "Paid on Friday.")


async def main(folder: Path) -> None:
    agents = {"front-desk": FrontDesk(), "billing": billing}
    async with callboard.open_runtime(f"sqlite:///{folder}/desk.db", agents=agents) as runtime:
        await runtime.open_session(path="/billing", agent="billing")
        desk = await runtime.open_session(path="/", agent="front-desk")  # get or create
        receipt = await runtime.send(desk.id, "My invoice is wrong", message_id="m-1")
        print(f"accepted: {receipt.message_id} ({receipt.status})")
        turns = 0
        async with runtime.follow(desk.id, after=0) as events:
            async for event in events:
                if event.kind == "turn.completed":
                    print(f"{event.kind}: {event.data['content']}")
                    turns += 1
                if turns == 2:
                    break
        answers = [entry for entry in await runtime.read(desk.id) if entry.role == "assistant"]
        print(f"{len(answers)} answers, the first in reply to {answers[0].in_reply_to}")
        message = await runtime.receipt("m-1")
        print(f"receipt: {message.status}, {message.outcome}, stages {', '.join(message.stages)}")


with tempfile.TemporaryDirectory() as name:
    trio.run(main, Path(name))
