"""Strict readers of what the edges send: an event stream, frames of a websocket. They know nothing of the code under test."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import attrs
import trio_websocket

from callboard.tests.flows.raw_client import Client

SeenEvent = tuple[int, str, dict[str, Any]]
"""(id, kind, data)"""


class EventReader:
    """A strict reader of one event stream. `beats` counts heartbeats, `retry` is the last delay that was told, in milliseconds."""

    def __init__(self, client: Client, status: int, headers: dict[str, str]) -> None:
        self.client = client
        self.status = status
        self.headers = headers
        self.beats = 0
        self.retry: int | None = None
        self._text = b""
        self._fields: dict[str, str] = {}
        self._ended = False

    async def event(self) -> SeenEvent | None:
        """The next event; None at an orderly end of the stream."""
        while (line := await self.line()) is not None:
            name, colon, value = line.partition(": ")
            if not line:
                fields, self._fields = self._fields, {}
                assert set(fields) == {"id", "event", "data"}, fields
                return int(fields["id"]), fields["event"], json.loads(fields["data"])
            if line.startswith(":"):
                assert line == ": beat"
                self.beats += 1
            elif name == "retry":
                self.retry = int(value)
            else:
                assert colon, line
                assert self._fields.setdefault(name, value) is value, line
        assert not self._fields, "the stream ends within an event"
        return None

    async def events(self, count: int) -> list[SeenEvent]:
        """The next `count` events."""
        found: list[SeenEvent] = []
        while len(found) < count:
            event = await self.event()
            assert event is not None, f"the stream ended after {found}"
            found.append(event)
        return found

    async def until(self, *kinds: str) -> list[SeenEvent]:
        """The events up to the first of one of `kinds`."""
        found = await self.events(1)
        while found[-1][1] not in kinds:
            found += await self.events(1)
        return found

    async def rest(self) -> list[SeenEvent]:
        """The events up to the orderly end."""
        found: list[SeenEvent] = []
        while (event := await self.event()) is not None:
            found.append(event)
        return found

    async def line(self) -> str | None:
        """The next line without its end; None at the orderly end of the response."""
        while b"\n" not in self._text and not self._ended:
            size = int(await self.client.line(), 16)
            self._text += await self.client.take(size)
            assert await self.client.take(2) == b"\r\n"
            self._ended = size == 0
        line, newline, self._text = self._text.partition(b"\n")
        assert newline or not line
        return line.decode("ascii") if newline else None


@attrs.frozen
class LiveReader:
    """A websocket of a test: frames as JSON."""

    websocket: trio_websocket.WebSocketConnection

    async def say(self, type: str, **fields: Any) -> None:
        """Send a command."""
        await self.websocket.send_message(json.dumps({"type": type, **fields}))

    async def frame(self) -> dict[str, Any]:
        """The next frame."""
        message = await self.websocket.get_message()
        assert isinstance(message, str)
        return json.loads(message)

    async def ask(self, type: str, **fields: Any) -> dict[str, Any]:
        """Send a command and return the next frame."""
        await self.say(type, **fields)
        return await self.frame()

    async def events(self, count: int) -> list[SeenEvent]:
        """The next `count` frames, all of which must be events."""
        return [event_of(await self.frame()) for _ in range(count)]

    async def until(self, *kinds: str) -> list[SeenEvent]:
        """Event frames up to the first of one of `kinds`."""
        found = await self.events(1)
        while found[-1][1] not in kinds:
            found += await self.events(1)
        return found

    async def closing(self) -> tuple[int, str | None]:
        """Code and reason of the close frame, whatever frames are before it."""
        with suppress(trio_websocket.ConnectionClosed):
            while True:
                await self.websocket.get_message()
        reason = self.websocket.closed
        assert reason is not None
        return reason.code, reason.reason


def event_of(frame: dict[str, Any]) -> SeenEvent:
    """An event frame as (id, kind, data)."""
    assert set(frame) == {"type", "session", "id", "kind", "data"}, frame
    assert frame["type"] == "event"
    return frame["id"], frame["kind"], frame["data"]
