"""Server-sent events from bytes, by the WHATWG rules. Pure. Not here: writing them (`edges/stream`), and what their data means.

Invariant: the events do not depend on how the bytes were cut into chunks; what never ends is refused before it fills the memory.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

LINE_BYTES: Final = 1024 * 1024
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_BOM: Final = b"\xef\xbb\xbf"
_MILLISECONDS_DIGITS: Final = 12


class EventTooLong(ValueError):
    """A line, or the data of one event, has more bytes than are allowed."""


@attrs.frozen
class ServerEvent:
    """One event. `last_event_id` is the last id that the stream has named, "" for none."""

    type: str
    data: str
    last_event_id: str


class EventParser:
    """The events of one stream. `last_event_id` and `retry_ms` are what a reconnection would go by. `limit` is in bytes."""

    def __init__(self, limit: int = LINE_BYTES) -> None:
        self.last_event_id = ""
        self.retry_ms: int | None = None
        self._limit = limit
        self._pending = bytearray()
        self._after_cr = False
        self._first = True
        self._type = ""
        self._id = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that end in this chunk. Raises `EventTooLong`; nothing can be read after that."""
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        searched = len(self._pending)
        self._pending += chunk
        events: list[ServerEvent] = []
        start = 0
        for end in _LINE_END.finditer(self._pending, searched):
            event = self._line(bytes(self._pending[start : end.start()]))
            start = end.end()
            # A CR ends its line at once, so that an event is not held back; an LF that still comes belongs to it.
            self._after_cr = end[0] == b"\r" and start == len(self._pending)
            if event is not None:
                events.append(event)
        del self._pending[:start]
        if len(self._pending) > self._limit:
            raise EventTooLong(f"a line has more than {self._limit} bytes")
        return events

    def _line(self, raw: bytes) -> ServerEvent | None:
        if len(raw) > self._limit:
            raise EventTooLong(f"a line has more than {self._limit} bytes")
        if self._first:
            raw, self._first = raw.removeprefix(_BOM), False
        if not raw:
            return self._dispatch()
        name, _, value = raw.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._size += len(raw)
            if self._size > self._limit:
                raise EventTooLong(f"an event has more than {self._limit} bytes")
            self._data.append(value)
        elif name == "event":
            self._type = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit() and len(value) <= _MILLISECONDS_DIGITS:
            self.retry_ms = int(value)
        return None

    def _dispatch(self) -> ServerEvent | None:
        self.last_event_id = self._id
        event = ServerEvent(self._type or "message", "\n".join(self._data), self._id) if self._data else None
        self._type, self._data, self._size = "", [], 0
        return event
