"""The team of the scripted day: `callboard serve --team callboard.tests.flows.same_day_team:team`.

Its agents do the same each time, wherever they run: what they wait for is a row, never a moment.
"""

from __future__ import annotations

import trio

import callboard
from callboard import Turn
from callboard.storage.model.errors import Denied, NotFound
from callboard.storage.model.messages import Kind


async def echo(turn: Turn) -> str:
    return f"{turn.text}, {len(turn.messages)} in all"


async def stream(turn: Turn) -> None:
    for part in (turn.text, " | ", "x" * 450, " | end"):
        await turn.emit(part)


async def flaky(turn: Turn) -> str:
    """Fails until a failure of this message is recorded."""
    if "fail" in turn.text and (await turn.desk.receipt(turn.scope, turn.message.id)).attempts == 0:
        await turn.emit("this will not last " * 20)
        raise RuntimeError("as asked")
    return f"ok {turn.text}"


async def relay(turn: Turn) -> str:
    """`PATH WORDS`: sends the words there."""
    path, _, words = turn.text.partition(" ")
    await turn.tools.agent_send(path, words)
    return f"sent {words}, with {sum(message.kind == Kind.NOTICE for message in turn.messages)} notices"


async def parent(turn: Turn) -> str:
    """Has a child for each message; hears it."""
    if turn.message.kind == Kind.SUBAGENT_RESULT:
        return f"heard {turn.text}"
    await turn.tools.agent(turn.message.message_id, agent="child", title=turn.message.message_id)
    return "started"


async def child(turn: Turn) -> str:
    """Answers once its parent's turn, whose message it is told, has ended."""
    while (await turn.desk.receipt(turn.scope, turn.text)).status != "delivered":  # noqa: ASYNC110 (a turn may follow nobody)
        await trio.sleep(0.02)
    return f"done for {turn.text}"


async def slow(turn: Turn) -> str | None:
    """Streams and works until it is asked to stop, but for what is quick."""
    if turn.text == "quick":
        return "quick it was"
    await turn.emit("partial " * 30)
    await turn.sleep(float("inf"))
    return None


async def guide(turn: Turn) -> str:
    """`/PATH` hands over to it; `take:ID` takes the post of that id in once it is there; `leave:ID` leaves it to the next turn."""
    for word in turn.text.split():
        what, _, awaited = word.partition(":")
        if what in ("take", "leave"):
            while not await _posted(turn, awaited):  # noqa: ASYNC110 (a turn may follow nobody)
                await trio.sleep(0.02)
        if what == "take":
            await turn.steered()
        if word.startswith("/"):
            await turn.tools.connect_user(word)
    return f"heard: {'; '.join(message.content for message in turn.messages)}"


async def _posted(turn: Turn, message_id: str) -> bool:
    try:
        await turn.desk.receipt(turn.scope, message_id)
    except NotFound:
        return False
    return True


@callboard.tool("durable")
async def book(room: int) -> str:
    return f"booked {room}"


@callboard.tool("pure")
async def look(room: int) -> str:
    return f"looked at {room}"


@callboard.tool("external", needs_approval=True)
async def charge(amount: int) -> str:
    return f"charged {amount}"


async def clerk(turn: Turn) -> str:
    """Uses a tool of each class; charging needs somebody's word."""
    done = [str(await turn.step(look, room=7)), str(await turn.step(book, room=7))]
    try:
        done.append(str(await turn.step(charge, amount=5)))
    except Denied:
        done.append("not charged")
    return "; ".join(done)


team = callboard.Team(
    agents={
        "echo": echo, "stream": stream, "flaky": flaky, "relay": relay, "parent": parent, "child": child, "slow": slow,
        "clerk": clerk, "guide": guide,
    },
    sessions={
        "/": "echo", "/echo": "echo", "/stream": "stream", "/flaky": "flaky", "/relay": "relay", "/parent": "parent",
        "/slow": "slow", "/doomed": "slow", "/clerk": "clerk", "/guide": "guide",
    },
)  # fmt: skip
