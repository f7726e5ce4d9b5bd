"""Desks on one store: on PostgreSQL two processes that serve at once, on SQLite one that is killed and started again between two steps.

Here: starting and striking them, opening desks, what a member's client asks. Not here: any judgement. The agents are the demonstration's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import trio

from callboard import client
from callboard.tests.flows.cli_kit import DEADLINE, Serving, announced, running
from callboard.tests.flows.edge_readers import EventReader, SeenEvent
from callboard.tests.flows.raw_client import Client
from callboard.tests.flows.test_client_handoffs import told


class Desks:
    """`near` is the only process that the member's client knows, and of two the one that has its hands full; `far` runs the turns."""

    def __init__(self, nursery: trio.Nursery, url: str, folder: Path, project: str) -> None:
        self.project = project
        self.token = ""
        self._nursery = nursery
        self._url = url
        self._folder = folder
        self._serving: dict[str, Serving] = {}

    @property
    def near(self) -> Serving:
        return self._serving["near"]

    @property
    def far(self) -> Serving:
        return self._serving["far"]

    @property
    def all(self) -> list[Serving]:
        """Each process once."""
        return [self.near] if self.near is self.far else [self.near, self.far]

    async def start(self) -> None:
        """Start what the store is for."""
        if self._url.startswith("sqlite"):
            self._serving = dict.fromkeys(("near", "far"), await self._nursery.start(self._serve, self._folder))
        else:
            async with trio.open_nursery() as both:
                both.start_soon(self._start, "near", 1)
                both.start_soon(self._start, "far")

    async def strike(self) -> None:
        """Kill (-9) the process of a file, and start the next one where it was. Of two processes, both go on."""
        if self.near is self.far:
            self.near.command.process.kill()
            await self.near.command.end()
            again = await self._nursery.start(self._serve, self._folder, self.near.port)
            self._serving = dict.fromkeys(("near", "far"), again)

    async def keep_near_busy(self) -> None:
        """Have `near` run as many turns as it may, for as long as it lives, and then nothing more.

        It mostly takes what is posted to it; if `far` was quicker, that one has another turn to run, which keeps nobody from anything.
        """
        holder = ""
        while f".{self.near.pid}." not in holder:
            busy = await self.operator(self.near, "POST", "/v1/sessions", project="busy", agent="deploy")
            address = f"/v1/sessions/{busy['id']}"
            await self.operator(self.near, "POST", f"{address}/messages", project="busy", content="hang 3600")
            key = self.near.token_file.read_text().strip()
            async with self.stream(f"{address}/events", key=key, project="busy") as stream:
                holder = (await stream.until("attempt.claimed"))[-1][2]["holder"]

    async def _start(self, name: str, most: int | None = None) -> None:
        self._serving[name] = await self._nursery.start(self._serve, self._folder / name, 0, most)

    async def _serve(
        self, folder: Path, port: int = 0, most: int | None = None, *, task_status: trio.TaskStatus[Serving]
    ) -> None:
        """Run a process in a task of its own, so that it can be started and ended within any other block."""
        await trio.Path(folder).mkdir(exist_ok=True)
        variables = {} if most is None else {"CALLBOARD_LIVE_TURNS": str(most)}
        given = ("serve", "--json", "--port", str(port), "--store", self._url)
        async with running(*given, folder=folder, **variables) as command:
            task_status.started(await announced(command, folder))
            await trio.sleep_forever()

    async def open(self, path: str, agent: str) -> str:
        """Have the operator open a session; its id."""
        opened = await self.operator(self.near, "POST", "/v1/sessions", path=path, agent=agent)
        return opened["id"]

    async def operator(
        self, server: Serving, method: str, address: str, *, project: str | None = None, **body: Any
    ) -> dict[str, Any]:
        """Ask as the operator, in the member's project by default."""
        async with server.http as http:
            fields = {"Callboard-Project": project or self.project}
            answer = await http.request(method, address, json=body or None, headers=fields)
        assert answer.is_success, (answer.status_code, answer.text)
        return answer.json()

    async def ask(self, method: str, address: str, server: Serving | None = None, **body: Any) -> dict[str, Any]:
        """Ask as the member, by default where their client is."""
        fields = {"Authorization": f"Bearer {self.token}"}
        url = (server or self.near).url
        async with httpx.AsyncClient(base_url=url, headers=fields, timeout=DEADLINE, trust_env=False) as http:
            answer = await http.request(method, address, json=body or None)
        assert answer.is_success, (answer.status_code, answer.text)
        return answer.json()

    async def post(self, session: str, content: str, message_id: str) -> dict[str, Any]:
        """Post as the member; the message."""
        await self.ask("POST", f"/v1/sessions/{session}/messages", content=content, message_id=message_id)
        return await self.ask("GET", f"/v1/messages/{message_id}")

    async def at(self, path: str) -> str:
        """The id of the session at a path."""
        return (await self.ask("GET", f"/v1/sessions?path={path}"))["sessions"][0]["id"]

    async def said(self, session: str, *roles: str) -> list[str]:
        """What stands in a session's transcript, by all or by some roles."""
        entries = (await self.ask("GET", f"/v1/sessions/{session}/transcript"))["entries"]
        return [entry["content"] for entry in entries if not roles or entry["role"] in roles]

    @asynccontextmanager
    async def stream(
        self, address: str, last: int = 0, server: Serving | None = None, *, key: str = "", project: str = ""
    ) -> AsyncIterator[EventReader]:
        """An SSE stream as the member, by default where their client is; `last` is its Last-Event-ID. With another's `key`: in a `project`."""
        server = server or self.near
        async with Client(await trio.open_tcp_stream("127.0.0.1", server.port)) as raw:
            fields = [
                f"Host: 127.0.0.1:{server.port}",
                f"Authorization: Bearer {key or self.token}",
                f"Last-Event-ID: {last}",
            ]
            fields += [f"Callboard-Project: {project}"] if project else []
            await raw.send("\r\n".join([f"GET {address} HTTP/1.1", *fields, "", ""]).encode())
            head = await raw.head()
            assert head.status == 200, head
            yield EventReader(raw, head.status, head.headers)

    async def log(self, session: str) -> list[SeenEvent]:
        """The events of a session up to the end of its first turn."""
        async with self.stream(f"/v1/sessions/{session}/events") as stream:
            return await stream.until("turn.completed")

    @asynccontextmanager
    async def voice(self, memory: client.Remembered, where: str | None = None) -> AsyncIterator[client.Front]:
        """The member's front, once it has begun."""
        async with client.open_front(self.near.url, self.token, where, memory=memory) as front:
            await told(front, client.Opened, by=client.By.START)
            yield front


@asynccontextmanager
async def desks_on(url: str, folder: Path, project: str = "default") -> AsyncIterator[Desks]:
    """Processes on the store at `url`, and a member of `project`, who has a token. The team's sessions are in the project `default`."""
    with trio.fail_after(DEADLINE):
        async with trio.open_nursery() as nursery:
            yield await _opened(Desks(nursery, url, folder, project))
            nursery.cancel_scope.cancel()


async def _opened(desks: Desks) -> Desks:
    await desks.start()
    if len(desks.all) > 1:
        await desks.keep_near_busy()
    await desks.operator(desks.near, "POST", "/v1/members", name="ann")
    desks.token = (await desks.operator(desks.near, "POST", "/v1/tokens", member="ann"))["token"]
    return desks
