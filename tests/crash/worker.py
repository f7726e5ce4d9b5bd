"""The process that the crash tests kill: a runtime on one SQLite file, driven by JSON lines.

stdin: `{"do": command, "n": number, ...}` a line. stdout: `{"said": ...}` lines; the answer to a command is `{"said": "reply", "n": number}`
with its result, or with `error`. A receipt is printed after its send has returned, never before. A worker opens nothing by itself.
SIGTERM and the end of stdin stop it cleanly. Run with a socket's descriptor as its argument, this file forks workers (`worker_fork`); those
that are asked for by the name `day` take no commands, but live one day (`worker_day`).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import trio
from worker_hooks import Hooks, Trap, Wall, say

WALL = Wall()
WALL.install()

from worker_agents import Gates, make_agents  # noqa: E402 (the clock is patched first)
from worker_day import live_a_day  # noqa: E402
from worker_faults import Faults, fail_syncs  # noqa: E402
from worker_fork import fork_workers  # noqa: E402
from worker_story import converse, settled  # noqa: E402
from worker_tools import Side  # noqa: E402

import callboard  # noqa: E402
from callboard.storage.model.errors import CallboardError  # noqa: E402
from callboard.storage.sqlite.driver import SqliteDriver  # noqa: E402
from callboard.supervisors.runtime import open_runtime  # noqa: E402 (the facade is lazy, and all of it is to be loaded by now)


class Host:
    """At most one open runtime, and the commands."""

    def __init__(self, nursery: trio.Nursery, hooks: Hooks) -> None:
        self._nursery = self._followers = nursery
        self._hooks = hooks
        self._runtime: callboard.Runtime | None = None
        self._closing = trio.Event()
        self._closed = trio.Event()
        self._gates = Gates()
        self._faults = Faults()

    @property
    def runtime(self) -> callboard.Runtime:
        assert self._runtime is not None, "nothing is open"
        return self._runtime

    # -- opening and closing ---------------------------------------------------------------------------------------------

    async def open(
        self,
        path: str,
        tuning: dict[str, Any] | None = None,
        trap: dict[str, Any] | None = None,
        plain_user: bool = False,
        model: str | None = None,
    ) -> dict[str, Any]:
        """Open the file. `plain_user` gives up root's rights first, which no file mode would stop; `model` is where the agent `chat` asks."""
        if plain_user and os.geteuid() == 0:
            os.seteuid(65534)
        self._hooks.arm(Trap(**(trap or {})))
        self._closing, self._closed = trio.Event(), trio.Event()
        self._runtime = await self._nursery.start(self._run, path, callboard.Tuning(**(tuning or {})), model)
        return {"now": self.runtime.store.now(), "process": self.runtime.process}

    async def _run(
        self,
        path: str,
        tuning: callboard.Tuning,
        model: str | None,
        *,
        task_status: trio.TaskStatus[callboard.Runtime],
    ) -> None:
        agents = make_agents(Side(Path(f"{path}.side")), self._gates, model)
        opened = False
        try:
            async with open_runtime(f"sqlite:///{path}", agents=agents, tuning=tuning) as runtime:
                opened = True
                async with trio.open_nursery() as self._followers:
                    task_status.started(runtime)
                    await self._closing.wait()
                    self._followers.cancel_scope.cancel()
        except CallboardError as error:
            if not opened:
                raise
            say("failed", error=error.code, message=error.message)
        finally:
            self._closed.set()

    async def close(self) -> None:
        """Stop the runtime cleanly."""
        if self._runtime is not None:
            self._closing.set()
            await self._closed.wait()
            self._runtime = None

    # -- what people do --------------------------------------------------------------------------------------------------

    async def session(self, path: str, agent: str) -> dict[str, Any]:
        return {"id": (await self.runtime.open_session(path=path, agent=agent)).id}

    async def send(self, session: str, content: str, message_id: str | None = None) -> dict[str, Any]:
        receipt = await self.runtime.send(session, content, message_id=message_id)
        return {"message_id": receipt.message_id, "created": receipt.created, "seq": receipt.seq}

    async def stop(self, session: str, drop_queued: bool = False) -> dict[str, Any]:
        return {"turn": await self.runtime.stop(session, drop_queued=drop_queued)}

    async def wait(self, message_id: str) -> dict[str, Any]:
        view = await self.runtime.wait(message_id)
        return {"status": view.status, "outcome": view.outcome, "reason": view.reason}

    async def follow(self, session: str, after: int) -> None:
        """Print the events of a session until the runtime is closed."""
        self._followers.start_soon(self._follow, session, after)

    async def _follow(self, session: str, after: int) -> None:
        async with self.runtime.follow(session, after=after) as feed:
            async for event in feed:
                say("event", session=session, id=event.id, kind=event.kind)

    async def storm(self, plan: list[tuple[str, str, list[list[str]]]]) -> None:
        """One sender for each (path, agent, [[message id, content]]), each sending one after the other."""
        async with trio.open_nursery() as nursery:
            for path, agent, messages in plan:
                nursery.start_soon(self._send_all, path, agent, messages)

    async def _send_all(self, path: str, agent: str, messages: list[list[str]]) -> None:
        session = await self.runtime.open_session(path=path, agent=agent)
        for message_id, content in messages:
            receipt = await self.runtime.send(session.id, content, message_id=message_id)
            say("accepted", message_id=receipt.message_id, created=receipt.created, session=session.id)

    async def idle(self) -> None:
        """Wait until no mailbox is due at any time, or held."""
        await settled(self.runtime)

    async def converse(self) -> None:
        """See `worker_story`."""
        await converse(self.runtime)

    # -- what the test does to it ----------------------------------------------------------------------------------------

    async def release(self, gate: str) -> None:
        self._gates[gate].set()

    async def skew(self, seconds: float) -> dict[str, Any]:
        """Step this process's wall clock. Returns store time."""
        WALL.skew = seconds
        return await self.now()

    async def now(self) -> dict[str, Any]:
        return {"now": self.runtime.store.now() if self._runtime is not None else None}

    async def stuck(self) -> dict[str, Any]:
        return {"stuck": self.runtime.dispatcher.stuck}

    async def renewed(self, times: int) -> None:
        """Wait until leases were renewed this often from now on."""
        await self._hooks.renewals(times)

    async def pragma(self, name: str, value: int) -> dict[str, Any]:
        """Set a limit of the writing connection, as a full disk or a closed file would be one."""
        driver = cast("SqliteDriver", self.runtime.store._driver)
        return {"value": await driver._writer.run(lambda conn: conn.execute(f"PRAGMA {name}={value}").fetchone())}

    async def fault(self, name: str, more: int = 0) -> None:
        """Let something break under this process, or `mend` it; see `worker_faults`."""
        database = self.runtime.store.file
        assert database is not None
        match name:
            case "lose log":
                self._faults.lose_log(database)
            case "limit growth":
                self._faults.limit_growth(database, more)
            case "fail syncs":
                fail_syncs()
            case _:
                self._faults.mend()


async def commands() -> AsyncIterator[dict[str, Any]]:
    """The lines of stdin, until its end."""
    waiting = b""
    async with trio.lowlevel.FdStream(os.dup(0)) as stream:
        async for chunk in stream:
            *lines, waiting = (waiting + chunk).split(b"\n")
            for line in lines:
                yield json.loads(line)


async def carry_out(host: Host, command: dict[str, Any]) -> None:
    number, name = command.pop("n"), command.pop("do")
    try:
        result = await getattr(host, name)(**command)
    except CallboardError as error:
        owner = getattr(error, "owner", None)
        say("reply", n=number, error=error.code, message=error.message, path=error.path, owner=owner)
    else:
        say("reply", n=number, **(result or {}))


async def main() -> None:
    hooks = Hooks()
    hooks.install()
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            host = Host(nursery, hooks)

            async def stop_on_signal() -> None:
                async for _ in signals:
                    await host.close()
                    nursery.cancel_scope.cancel()

            nursery.start_soon(stop_on_signal)
            say("ready")
            async for command in commands():
                nursery.start_soon(carry_out, host, command)
            await host.close()
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    if fork_workers(int(sys.argv[1])) == "day":
        live_a_day(WALL)
    else:
        trio.run(main)
