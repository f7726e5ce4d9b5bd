"""The same runtime for asyncio and threaded hosts: Trio runs in a thread of its own, every call blocks the calling thread.

Lives here: starting and ending that thread, carrying calls over. Not here: what the calls do (`runtime`). From asyncio, call it through
`asyncio.to_thread`; any number of threads may use one portal.

Invariant: leaving the block ends the runtime cleanly and its thread with it; what the runtime raised is raised here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any, Literal, TypeVar

import trio

from ..actors.tail import Feed, Resync
from ..storage.model.errors import Unavailable
from ..storage.model.events import Event
from ..storage.model.messages import MessageView, Receipt
from ..storage.model.sessions import Entry, Session
from .runtime import Runtime, open_runtime

T = TypeVar("T")


class Portal:
    """`Runtime` for threads: the same calls, blocking. After its block every call raises `Unavailable`."""

    def __init__(self, runtime: Runtime, token: trio.lowlevel.TrioToken) -> None:
        self._runtime = runtime
        self._token = token
        self._closed = False

    def open_session(self, *, agent: str, path: str | None = None, title: str = "") -> Session:
        """See `Runtime.open_session`."""
        return self._call(lambda runtime: runtime.open_session(agent=agent, path=path, title=title))

    def rename_session(self, session: str, *, path: str | None = None, title: str | None = None) -> Session:
        """See `Runtime.rename_session`."""
        return self._call(lambda runtime: runtime.rename_session(session, path=path, title=title))

    def set_policy(
        self,
        prefix: str = "/",
        *,
        edge: Literal["collaborate", "handoff_only"] | None = None,
        agents: Literal["none", "create", "rename"] | None = None,
        handoff: bool | None = None,
        confirm: bool | None = None,
    ) -> None:
        """See `Runtime.set_policy`."""
        self._call(
            lambda runtime: runtime.set_policy(prefix, edge=edge, agents=agents, handoff=handoff, confirm=confirm)
        )

    def list_sessions(self, *, active: bool = False, limit: int = 200) -> tuple[Session, ...]:
        """See `Runtime.list_sessions`."""
        return self._call(lambda runtime: runtime.list_sessions(active=active, limit=limit))

    def send(self, session: str, content: str, *, message_id: str | None = None) -> Receipt:
        """See `Runtime.send`."""
        return self._call(lambda runtime: runtime.send(session, content, message_id=message_id))

    def read(self, session: str, *, after: int = 0) -> list[Entry]:
        """See `Runtime.read`."""
        return self._call(lambda runtime: runtime.read(session, after=after))

    def receipt(self, message_id: str) -> MessageView:
        """See `Runtime.receipt`."""
        return self._call(lambda runtime: runtime.receipt(message_id))

    def wait(self, message_id: str) -> MessageView:
        """See `Runtime.wait`."""
        return self._call(lambda runtime: runtime.wait(message_id))

    def stop(self, session: str, *, drop_queued: bool = False) -> str:
        """See `Runtime.stop`."""
        return self._call(lambda runtime: runtime.stop(session, drop_queued=drop_queued))

    @contextmanager
    def follow(self, session: str, *, after: int = 0) -> Generator[Iterator[Event | Resync]]:
        """See `Runtime.follow`; iterate what the block is given."""

        async def enter(runtime: Runtime) -> tuple[Any, Feed]:
            following = runtime.follow(session, after=after)
            return following, await following.__aenter__()

        following, feed = self._call(enter)
        try:
            yield self._events(feed)
        finally:
            if not self._closed:
                self._call(lambda _: following.__aexit__(None, None, None))

    def close(self, ending: trio.Event) -> None:
        """Take no more calls and let the runtime end. For `open_portal`."""
        self._closed = True
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(ending.set)

    def _events(self, feed: Feed) -> Iterator[Event | Resync]:
        while True:
            yield self._call(lambda _: feed.__anext__())

    def _call(self, call: Callable[[Runtime], Any]) -> Any:
        if self._closed:
            raise Unavailable("the portal is closed")
        try:
            return trio.from_thread.run(call, self._runtime, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled):
            raise Unavailable("the runtime has ended") from None


@contextmanager
def open_portal(url: str, *, agents: Mapping[str, Any], project: str = "default", **options: Any) -> Generator[Portal]:
    """Run a runtime in a thread around a block. Arguments and errors are those of `open_runtime`."""
    answers: SimpleQueue[Portal | BaseException] = SimpleQueue()
    failures: list[BaseException] = []
    ending: list[trio.Event] = []

    async def main() -> None:
        token = trio.lowlevel.current_trio_token()
        ending.append(trio.Event())
        async with open_runtime(url, agents=agents, project=project, **options) as runtime:
            answers.put(Portal(runtime, token))
            await ending[0].wait()

    def run() -> None:
        try:
            trio.run(main)
        except BaseException as error:
            failures.append(error)
            answers.put(error)

    thread = threading.Thread(target=run, name="callboard")
    thread.start()
    opened = answers.get()
    if isinstance(opened, BaseException):
        thread.join()
        raise opened
    try:
        yield opened
    finally:
        opened.close(ending[0])
        thread.join()
    if failures:
        raise failures[0]
