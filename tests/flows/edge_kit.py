"""What the tests of the edges share: a served runtime, and agents for it.

Not here: any judgement, the fixture `served` (conftest), what reads streams and frames (edge_readers), raw HTTP (raw_client).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx
import trio
import trio_websocket

from callboard.actors.edges.limits import Limits
from callboard.actors.edges.token_file import load_or_create_token
from callboard.actors.ports import Tuning
from callboard.actors.session.agents.scripted import Rule, Scripted, calls
from callboard.actors.session.turn import Turn
from callboard.supervisors.front import Front, FrontSettings
from callboard.supervisors.runtime import Runtime, open_runtime
from callboard.tests.flows.edge_readers import EventReader, LiveReader, SeenEvent
from callboard.tests.flows.raw_client import Client

DEADLINE = 30.0
TERMINAL = ("turn.completed", "turn.failed", "turn.stopped")


async def count(turn: Turn) -> str:
    """`count N`: streams 1 to N, each token in a block of its own; answers `N tokens`."""
    most = int(turn.text.split()[1])
    for number in range(1, most + 1):
        await turn.emit(f"{number} ".ljust(200, "."))
    return f"{most} tokens"


async def shout(turn: Turn) -> str:
    """`shout N`: streams N blocks of 20,000 characters."""
    for number in range(int(turn.text.split()[1])):
        await turn.emit(f"{number} ".ljust(20_000, "!"))
    return "done"


async def wait_for_stop(turn: Turn) -> str:
    """Works until it is asked to stop."""
    await turn.emit("working")
    while await turn.sleep(60.0):
        pass
    return "stopped as asked"


async def fail(turn: Turn) -> str:
    """Always raises."""
    raise RuntimeError(f"no luck with {turn.text!r}")


async def silent(turn: Turn) -> None:
    """Never answers."""


AGENTS: Mapping[str, Any] = {
    "desk": Scripted(
        [
            Rule(r"echo (.*)", r"\1"),
            Rule(r"ask (\S+) (.*)", calls("agent_send", agent_id=r"\1", message=r"\2")),
        ],
        otherwise="try: echo TEXT",
    ),
    "counter": count,
    "loud": shout,
    "patient": wait_for_stop,
    "broken": fail,
    "silent": silent,
}


@attrs.frozen
class Served:
    """A runtime with its front. `client` has the address and the operator's bearer token."""

    url: str
    token: str
    runtime: Runtime
    client: httpx.AsyncClient
    front: Front

    @property
    def headers(self) -> dict[str, str]:
        """The bearer field, for clients of another kind."""
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def open(self, agent: str = "desk", **fields: Any) -> str:
        """Open a session over HTTP and return its id."""
        answer = await self.client.post("/v1/sessions", json={"agent": agent, **fields})
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    async def post(self, session: str, content: str, **fields: Any) -> dict[str, Any]:
        """Post a message over HTTP and return the receipt."""
        answer = await self.client.post(f"/v1/sessions/{session}/messages", json={"content": content, **fields})
        assert answer.status_code == 202, answer.text
        return answer.json()

    async def say(self, session: str, content: str, **fields: Any) -> dict[str, Any]:
        """Post a message and wait until it is final; returns the message as `GET /v1/messages/{id}` shows it."""
        receipt = await self.post(session, content, **fields)
        await self.runtime.wait(receipt["message_id"])
        return (await self.client.get(f"/v1/messages/{receipt['message_id']}")).json()

    async def until(self, session: str, *kinds: str) -> int:
        """Wait until the session has an event of one of `kinds`; returns its id."""
        async with self.runtime.follow(session) as feed:
            async for event in feed:
                if event.kind in kinds:
                    return event.id
        raise AssertionError("a feed never ends")

    async def refused(self, method: str, path: str, status: int, code: str, **request: Any) -> dict[str, Any]:
        """Make a request that must be refused so; returns the error, whose shape is checked."""
        answer = await self.client.request(method, path, **request)
        assert answer.status_code == status, (answer.status_code, answer.text)
        assert answer.headers["content-type"] == "application/json"
        assert set(answer.json()) == {"error"}
        error = answer.json()["error"]
        assert error["code"] == code, error
        assert set(error) - {"path"} == {"code", "message"}
        assert error["message"]
        return error

    async def raw(self, *, receive_buffer: int | None = None) -> Client:
        """A connection for raw bytes."""
        sock = trio.socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, receive_buffer)
        await sock.connect(("127.0.0.1", self.port))
        return Client(trio.SocketStream(sock))

    @asynccontextmanager
    async def stream(self, path: str, *, last: int | str | None = None, **fields: str) -> AsyncIterator[EventReader]:
        """An event stream from `path`; `last` is the Last-Event-ID, `fields` are further fields of the head."""
        given = {"Host": f"127.0.0.1:{self.port}", **self.headers, **fields}
        if last is not None:
            given["Last-Event-ID"] = str(last)
        async with await self.raw() as client:
            head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
            await client.send(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
            answer = await client.head()
            yield EventReader(client, answer.status, answer.headers)

    @asynccontextmanager
    async def live(self, query: str = "", **fields: str) -> AsyncIterator[LiveReader]:
        """A websocket to `/v1/live`."""
        given = [(name.encode(), value.encode()) for name, value in {**self.headers, **fields}.items()]
        # Not `open_websocket_url`: it leaves the socket open when the server closes first.
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as socket, trio.open_nursery() as nursery:
            websocket = await trio_websocket.wrap_client_stream(
                nursery,
                socket,
                f"127.0.0.1:{self.port}",
                f"/v1/live{query}",
                subprotocols=["callboard.v1"],
                extra_headers=given,
            )
            yield LiveReader(websocket)
            await websocket.aclose()

    async def log(self, session: str) -> list[SeenEvent]:
        """All events of a session as rows have them."""
        found: list[SeenEvent] = []
        more = True
        while more:
            after = found[-1][0] if found else 0
            page = await self.runtime.store.reads.events(self.runtime.scope, session, after=after)
            found += [(event.id, event.kind, event.data) for event in page.events]
            more = page.more
        return found


@asynccontextmanager
async def serving_runtime(
    folder: Path,
    *,
    agents: Mapping[str, Any] = AGENTS,
    tuning: Tuning | None = None,
    limits: Limits | None = None,
    store: str | None = None,
    **settings: Any,
) -> AsyncIterator[Served]:
    """A runtime on `folder`/callboard.db (or the URL `store`) with its front; `settings` are fields of `FrontSettings`."""
    token = load_or_create_token(folder)
    front = Front(
        FrontSettings(
            token=token,
            port=settings.pop("port", 0),
            limits=limits or Limits(grace_seconds=1.0, linger_seconds=0.2, close_seconds=1.0),
            **settings,
        )
    )
    url = store or f"sqlite:///{folder}/callboard.db"
    with trio.fail_after(DEADLINE):
        async with open_runtime(url, agents=agents, tuning=tuning, extra=front) as runtime:
            await runtime.open_session(path="/", agent=next(iter(agents)))
            headers = {"Authorization": f"Bearer {token}"}
            async with httpx.AsyncClient(base_url=front.url, headers=headers, timeout=DEADLINE) as client:
                yield Served(front.url, token, runtime, client, front)
