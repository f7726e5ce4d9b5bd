"""A process that is killed in the middle of a turn: opens the store that it is given, and says when that was its own and when a turn began.

Started by `restart_scenarios`. Arguments: a URL, and `send` to post the one message. Each line that it prints is `{what: time}`, in seconds
since the epoch.
"""

from __future__ import annotations

import json
import sys
import time

import trio

import callboard
from callboard.storage.sqlite import driver
from callboard.storage.sqlite.lock import FileLock, acquire_lock
from callboard.tests.bench.kit import running

LEASE_SECONDS = 1.0
"""Where a lease has to run out first: not longer than a measurement may take."""


def say(what: str) -> None:
    print(json.dumps({what: time.time()}), flush=True)


def lock_and_say(path: str) -> FileLock:
    held = acquire_lock(path)
    say("locked")
    return held


async def agent(turn: callboard.Turn) -> None:
    say("turn")
    await trio.sleep_forever()


async def main(url: str, send: bool) -> None:
    driver.acquire_lock = lock_and_say
    async with running(url, agent, lease_seconds=LEASE_SECONDS, renew_seconds=LEASE_SECONDS / 3) as runtime:
        if send:
            session = await runtime.open_session(agent="echo")
            await runtime.send(session.id, "once")
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main, sys.argv[1], "send" in sys.argv[2:])
