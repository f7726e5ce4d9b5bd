"""The body of an HTTP answer, bounded, and left behind cleanly whenever its reader has enough. Not here: what it says.

Invariant: when a reader leaves, for whatever reason, the connection is closed and nothing of httpx is left hanging.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx

from .model import BrokenAnswer


@asynccontextmanager
async def chunks_of(response: httpx.Response) -> AsyncIterator[AsyncIterator[bytes]]:
    """The body as it comes; the connection is closed at the end, whether all of it was read or not."""
    # Not decoded: a few bytes can decode to more than any limit, and nothing but plain text was asked for.
    chunks = response.aiter_raw()
    try:
        yield chunks
    finally:
        await response.aclose()
        # The generators inside httpx must run to their end, which with a closed connection is near: left hanging, each is a warning
        # when it is collected.
        with suppress(httpx.HTTPError, httpx.StreamError):
            async for _ in chunks:
                pass


async def whole_of(chunks: AsyncIterator[bytes], most: int, *, cut: bool = False) -> bytes:
    """All of a body. One that is longer raises `BrokenAnswer`, or is cut."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > most:
            if cut:
                break
            raise BrokenAnswer(f"the model's answer has more than {most} bytes")
    return bytes(body[:most])
