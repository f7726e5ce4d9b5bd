"""The conversation that is killed at each of its commits, and waiting for what is recorded.

Runs in the worker process only. Invariant: each part of the conversation looks first at what is recorded, so that it can be taken up
again wherever an earlier process has died in it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import trio

import callboard
from callboard.storage.model.errors import Inactive, Unavailable
from callboard.storage.model.states import OPEN

T = TypeVar("T")


async def converse(runtime: callboard.Runtime) -> None:
    """A turn that streams and waits; one that does everything, a child too; a stop that drops what is queued; the notice about that."""
    await runtime.send("/slow", "begin", message_id="m-slow")
    await until(runtime, partial(_streamed, runtime, "m-slow"))
    await runtime.send("/guide", "go", message_id="m-go")
    await runtime.wait("m-go")
    (child,) = [entry.content for entry in await runtime.read("/guide") if entry.in_reply_to == "m-go"]
    result = f"subagent-result-{child.removeprefix('child ')}"
    await until(runtime, partial(known, runtime, result))
    await runtime.wait(result)
    await until(runtime, partial(_stopped, runtime, "/slow", "m-slow"))
    await runtime.wait("m-slow")
    await runtime.send("/guide", "notices?", message_id="m-notices")
    await runtime.wait("m-notices")
    await settled(runtime)


async def settled(runtime: callboard.Runtime) -> None:
    """Wait until no mailbox is due at any time, or held."""

    async def nothing_left() -> bool:
        return await runtime.store.reads.counts(float("inf")) == (0, 0)

    await until(runtime, nothing_left)


async def _streamed(runtime: callboard.Runtime, message_id: str) -> bool:
    view = await runtime.receipt(message_id)
    return view.status not in OPEN or bool(await runtime.store.reads.tokens(runtime.scope, view.session, view.turn_id))


async def known(runtime: callboard.Runtime, message_id: str) -> bool:
    try:
        await runtime.receipt(message_id)
    except callboard.NotFound:
        return False
    return True


async def _stopped(runtime: callboard.Runtime, session: str, message_id: str) -> bool:
    if (await runtime.receipt(message_id)).status not in OPEN:
        return True
    try:
        await runtime.stop(session, drop_queued=True)
    except Inactive:  # not claimed again yet, or just ended
        return False
    return True


async def until(runtime: callboard.Runtime, holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds. Look again at every change; once a second too, as hints may be lost."""
    changed = trio.Event()
    with runtime.store.changes.watch(None, lambda _: changed.set()):
        while not await holds():
            with trio.move_on_after(1):
                await changed.wait()
            changed = trio.Event()


async def once(do: Callable[[], Awaitable[T]]) -> T:
    """Do it, and fail with it."""
    return await do()


async def insist(do: Callable[[], Awaitable[T]]) -> T:
    """Do it again wherever the store has failed it: what it sends has ids, so that it may be sent again."""
    while True:
        try:
            return await do()
        except* Unavailable:
            pass
