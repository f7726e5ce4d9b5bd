"""How large a client's messages are, read from the announcements in their frame headers.

Lives here: a walk over frame headers that counts. Not here: judging frames; wsproto does, whatever passes here.

Invariant: of a message over the limit no byte passes from its first oversized announcement on. The library counts only what has arrived,
and text in characters, so a client could make us receive the limit first, or four times the limit.
"""

from __future__ import annotations

_CONTINUATION, _LAST_DATA_OPCODE = 0, 2
_EXTENDED = {126: 2, 127: 8}
_MASKED = 0x80
_NOT_A_LENGTH = 1 << 63
"""A length with the highest bit is a protocol error, not a large message: wsproto says so."""


class MessageMeter:
    """Follows one client's frames; `limit` in bytes of payload for a message, in one frame or in many."""

    def __init__(self, limit: int) -> None:
        self.exceeded = False
        """A message was announced that is too large; nothing of this client may pass any more."""
        self._limit = limit
        self._payload = 0
        """Bytes still to come of the present frame."""
        self._message = 0
        """Bytes announced so far for the present message."""
        self._header = bytearray()
        """The beginning of a header that was cut by the end of a read."""

    def admit(self, data: bytes) -> int:
        """How many of these next bytes may pass: all, or those before the frame that is too large."""
        position, size = 0, len(data)
        while position < size:
            if self._payload:
                step = min(self._payload, size - position)
                self._payload -= step
                position += step
                continue
            start = position
            position = self._take_header(data, position)
            if len(self._header) < self._header_size():
                break
            if not self._admit_frame():
                self.exceeded = True
                return start
            self._header.clear()
        return size

    def _take_header(self, data: bytes, position: int) -> int:
        # Twice at most: the first two bytes tell how many there are.
        while position < len(data) and (missing := self._header_size() - len(self._header)):
            piece = data[position : position + missing]
            self._header += piece
            position += len(piece)
        return position

    def _header_size(self) -> int:
        if len(self._header) < 2:
            return 2
        second = self._header[1]
        return 2 + _EXTENDED.get(second & 0x7F, 0) + (4 if second & _MASKED else 0)

    def _admit_frame(self) -> bool:
        opcode, length = self._header[0] & 0x0F, self._header[1] & 0x7F
        if extended := _EXTENDED.get(length):
            length = int.from_bytes(self._header[2 : 2 + extended], "big")
        self._payload = length
        if opcode > _LAST_DATA_OPCODE or length >= _NOT_A_LENGTH:
            return True
        self._message = length + (self._message if opcode == _CONTINUATION else 0)
        return self._message <= self._limit
