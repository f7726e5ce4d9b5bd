"""A scripted day: everything that a store is used for, by several people at once, in a process that may be killed anywhere in it.

Runs in the worker process only. One line of stdin says which store, and where to die (`Job`); stdout tells what was accepted, what was
seen, and `done`. Time jumps, so that a day of minutes takes a fraction of a second. Not here: the agents (`worker_cast`), points
(`worker_points`). Invariant: each part looks first at what is recorded, so that the next process can take the day up wherever this one died.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import attrs
import trio
from worker_agents import Gates, make_agents
from worker_cast import CAST, make_cast
from worker_hooks import Wall, say
from worker_points import WATCHED, Points, Steps, repeatable
from worker_story import converse, insist, known, once, settled, until
from worker_tools import Side

import callboard
from callboard.storage.model.errors import IllegalMove, UnknownTarget
from callboard.storage.model.messages import MessageView, Receipt
from callboard.storage.model.states import OPEN
from callboard.storage.wire import parse_object, structure
from callboard.supervisors.runtime import OPERATOR, open_runtime

TUNING = callboard.Tuning(poll_seconds=10.0, approval_seconds=4.0)
REQUEUED = "msg_" + "0" * 32


@attrs.frozen
class Job:
    """`url` of the store, `side` file of the tools. Struck at point `at`, if that is given, in the way `how` (`Points`); dead by it only if
    that is "kill", and else each commit alone is a point. `after` is where the follower had got to.

    `skew` is what the wall clock is off from the start, `step` how much it is stepped at point `half` (seconds). `fresh` only opens the
    sessions.
    """

    url: str
    side: str
    seed: str
    how: str = "kill"
    at: int | None = None
    half: int | None = None
    after: int = 0
    skew: float = 0.0
    step: float = 0.0
    fresh: bool = False


def live_a_day(wall: Wall) -> None:
    """Run the program of this process: read the job, live the day, or die in it."""
    job = structure(parse_object(sys.stdin.buffer.readline()), Job, "job")
    wall.skew = job.skew
    logging.disable()  # a day tells of many failures, and there are thousands of days

    def step() -> None:
        wall.skew += job.step

    points = Points(job.at, job.half, step, job.how)
    repeatable(job.seed)
    clock = WATCHED[job.url.partition(":")[0]](points, job.url)
    trio.run(_day, job, clock=clock, instruments=[Steps(points)] if job.how == "kill" else [])
    say("points", labels=points.labels)
    say("done")


async def _day(job: Job) -> None:
    side = Side(Path(job.side))
    agents = {**make_agents(side, Gates(), None), **make_cast(side)}
    async with open_runtime(job.url, agents=agents, tuning=TUNING, executor="inline") as runtime:
        if job.fresh:
            for path, agent in CAST.items():
                await runtime.open_session(path=path, agent=agent)
            return
        people = People(runtime)
        async with trio.open_nursery() as followers:
            live = once if job.how == "kill" else insist
            guide = await live(partial(runtime.open_session, path="/guide", agent="guide"))
            seen = Seen(job.after)
            followers.start_soon(live, partial(seen.follow, runtime, guide.id))
            async with trio.open_nursery() as nursery:
                for part in PARTS:
                    nursery.start_soon(live, partial(part, people))
            await live(partial(settled, runtime))
            newest = (await runtime.store.reads.session(runtime.scope, guide.id)).newest_event
            await until(runtime, partial(seen.up_to, newest))
            followers.cancel_scope.cancel()


class Seen:
    """Somebody who follows the guide: where they have got to."""

    def __init__(self, after: int) -> None:
        self.last = after

    async def follow(self, runtime: callboard.Runtime, session: str) -> None:
        async with runtime.follow(session, after=self.last) as feed:
            async for event in feed:
                say("event", id=event.id, kind=event.kind)
                self.last = event.id

    async def up_to(self, newest: int) -> bool:
        return self.last >= newest


class People:
    """A runtime as people use it, who tell what they were promised: `accepted` and `final` lines."""

    def __init__(self, runtime: callboard.Runtime) -> None:
        self.runtime = runtime

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runtime, name)

    async def send(self, session: str, content: str, *, message_id: str) -> Receipt:
        receipt = await self.runtime.send(session, content, message_id=message_id)
        say("accepted", message_id=message_id, id=receipt.id, created=receipt.created, seq=receipt.seq)
        return receipt

    async def wait(self, message_id: str) -> MessageView:
        view = await self.runtime.wait(message_id)
        say("final", id=view.id, status=view.status, reason=view.reason, outcome=view.outcome)
        return view

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        await until(self.runtime, holds)

    async def status(self, message_id: str) -> str:
        return (await self.runtime.receipt(message_id)).status

    async def claimed(self, message_id: str) -> bool:
        return await self.status(message_id) != "pending"

    async def empty(self, path: str) -> bool:
        """Whether nothing is open in a session's mailbox."""
        session = await self.runtime.desk.find(self.runtime.scope, path)
        inbox = await self.runtime.store.reads.inbox(self.runtime.scope, target=session.id, limit=200)
        return not any(message.status in OPEN for message in inbox.items)


async def story(people: People) -> None:
    """Streams, tools, a child, a stop that drops what is queued, the notice about it (`worker_story`)."""
    await converse(cast("callboard.Runtime", people))


async def failures(people: People) -> None:
    """An attempt that fails with another message behind it; one that fails for good, of which its sender hears."""
    await people.send("/flaky", "fail once", message_id="m-flaky-1")
    await people.send("/flaky", "go", message_id="m-flaky-2")
    await people.send("/relay", "/hopeless try", message_id="m-relay-1")
    await people.wait("m-relay-1")
    await people.until(partial(people.empty, "/hopeless"))
    await people.send("/relay", "/helper after", message_id="m-relay-2")
    for message in ("m-relay-2", "m-flaky-1", "m-flaky-2"):
        await people.wait(message)


async def steering(people: People) -> None:
    """Posts that are taken into the turn that runs."""
    await people.send("/steered", "begin", message_id="m-steer-1")
    await people.until(partial(people.claimed, "m-steer-1"))
    for n in (2, 3):
        await people.send("/steered", f"also {n}", message_id=f"m-steer-{n}")
    for n in (1, 2, 3):
        await people.wait(f"m-steer-{n}")


async def family(people: People) -> None:
    """Children that fail, run out of time, and answer: each wakes its parent once."""
    await people.send("/family", "begin", message_id="m-family")
    await people.wait("m-family")
    (answer,) = [entry.content for entry in await people.runtime.read("/family") if entry.in_reply_to == "m-family"]
    for child in answer.split():
        result = f"subagent-result-{child}"
        await people.until(partial(known, people.runtime, result))
        await people.wait(result)
    # Notices wake nobody: the next turn takes them along.
    await people.send("/family", "now what", message_id="m-family-2")
    await people.wait("m-family-2")


async def deletion(people: People) -> None:
    """A session is deleted while it runs a turn, with mail from another session behind it."""
    with suppress(UnknownTarget):
        await people.send("/doomed", "begin", message_id="m-doomed")
        await people.until(partial(people.claimed, "m-doomed"))
        await people.send("/errand", "/doomed wait", message_id="m-errand-1")
        await people.wait("m-errand-1")
        session = await people.runtime.desk.find(people.runtime.scope, "/doomed")
        await people.runtime.desk.delete(people.runtime.scope, session.id, OPERATOR)
    await people.send("/errand", "/helper after", message_id="m-errand-2")
    for message in ("m-doomed", "m-errand-2"):
        await people.wait(message)


async def changes(people: People) -> None:
    """A message that waits is cancelled, if it still waits, and is put in again."""
    await people.send("/pause", "first", message_id="m-pause-1")
    await people.send("/pause", "second", message_id="m-pause-2")
    with suppress(IllegalMove):
        await people.runtime.desk.cancel(people.runtime.scope, "m-pause-2", principal=OPERATOR.principal)
    await people.wait("m-pause-2")
    receipt = await people.runtime.desk.requeue(
        people.runtime.scope, "m-pause-2", principal=OPERATOR.principal, new_id=REQUEUED
    )
    say("accepted", message_id=receipt.message_id, id=receipt.id, created=receipt.created, seq=receipt.seq)
    await people.wait(REQUEUED)


async def crowd(people: People) -> None:
    """Several write to one session at once; all of them send one message that is the same."""

    async def one(name: str) -> None:
        for n in range(3):
            await people.send("/crowd", f"{name} {n}", message_id=f"m-{name}-{n}")
        await people.send("/crowd", "we all agree", message_id="m-all")
        for message in (*(f"m-{name}-{n}" for n in range(3)), "m-all"):
            await people.wait(message)

    async with trio.open_nursery() as nursery:
        for name in ("ann", "bea", "cem"):
            nursery.start_soon(one, name)


async def tools(people: People) -> None:
    """Tools of every class; streamed text; a question that nobody answers."""
    await people.send("/tinker", "go", message_id="m-tinker")
    await people.send("/stream", "go", message_id="m-stream")
    await people.send("/asking", "go", message_id="m-asking")
    for message in ("m-tinker", "m-stream", "m-asking"):
        await people.wait(message)


async def handoffs(people: People) -> None:
    """Two in one turn, and a turn behind it that has none."""
    await people.send("/usher", "/helper /guide", message_id="m-usher-1")
    await people.send("/usher", "thank you", message_id="m-usher-2")
    for message in ("m-usher-1", "m-usher-2"):
        await people.wait(message)


PARTS: tuple[Callable[[People], Awaitable[None]], ...] = (
    story, failures, steering, family, deletion, changes, crowd, tools, handoffs,
)  # fmt: skip
