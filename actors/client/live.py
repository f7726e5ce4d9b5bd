"""The client itself: connected again and again, with everything that was followed and everything that was not confirmed.

Lives here: reconnecting, following by cursor, sending under message ids, matching answers to questions. Not here: one connection (`link`),
one session's events (`subscription`).

Invariant: what a caller waits for is asked on every new connection until it is answered, under the same cursor or message id; so nothing
is lost with a connection and nothing is done twice.
"""

from __future__ import annotations

import logging
import random
import ssl
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import trio

from ...storage.model.errors import (
    CallboardError,
    Conflict,
    InvalidField,
    Rejected,
    Unavailable,
    UsageError,
    error_named,
)
from ...storage.model.ids import check_client_id, check_message_id
from ...storage.model.messages import check_text
from .link import Address, Link, address_of
from .subscription import LiveEvent, Subscription

log: Final = logging.getLogger("callboard.client")
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0
STEADY_SECONDS: Final = 1.0
"""A connection that lasted this long was a good one: the next pause is the shortest again."""
RESEND_SECONDS: Final = 1.0
SESSION_LENGTH: Final = 128
CLOSE_SECONDS: Final = 1.0


@attrs.frozen
class Accepted:
    """A send's confirmation: the message is a committed row. `created` is False for a row that an earlier frame or send has made."""

    session: str
    message_id: str
    created: bool
    status: str
    seq: int


@attrs.frozen
class Navigated:
    """A navigation's confirmation: `frontiers` are the newest events of sessions at that moment, by session (HND-4)."""

    session: str
    frontiers: dict[str, int]


_Answer = Accepted | Navigated | CallboardError | None


class _Question:
    """Something asked that waits for its answer: a value, or the error to raise."""

    def __init__(self, frame: dict[str, Any]) -> None:
        self.frame = frame
        self.answer: _Answer = None
        self._answered = trio.Event()

    def settle(self, answer: _Answer) -> None:
        self.answer = answer
        self._answered.set()

    async def wait(self) -> _Answer:
        await self._answered.wait()
        self._answered = trio.Event()
        return self.answer


class LiveClient:
    """A lasting conversation with one server. Get one from `connect`."""

    def __init__(self, address: Address, on_change: Callable[[bool], None] | None) -> None:
        self._address = address
        self._on_change = on_change
        self._link: Link | None = None
        self._first = trio.Event()
        self._failure: CallboardError | None = None
        self._closing = False
        self._subscriptions: dict[str, Subscription] = {}
        self._sends: dict[str, _Question] = {}
        self._navigations: list[_Question] = []
        self._asked: dict[str, deque[_Question | None]] = {}
        """By session, what the server answers without a message id, in the order asked: a stop or navigation, or None for a subscribe."""

    @property
    def connected(self) -> bool:
        """Whether there is a connection at this moment."""
        return self._link is not None

    def subscribe(self, session: str, *, after: int = 0) -> Subscription:
        """Follow a session (by id) from above event `after`, over every reconnection. Raises `Conflict` if this client does already."""
        self._check()
        _check_session(session)
        if session in self._subscriptions:
            raise Conflict("this client follows that session already", path="session")
        subscription = self._subscriptions[session] = Subscription(session, after, self._asked_by)
        self._subscribe(subscription)
        return subscription

    async def send(self, session: str, content: str, *, message_id: str | None = None) -> Accepted:
        """Post to a session (by id); returns once it is accepted, however many connections that takes.

        The message id (one is made if none is given) makes it one message. Cancelled, its outcome is unknown: send again under the same id.
        Raises `InvalidField`, `UnknownTarget`, `MessageConflict`, `MailboxFull`.
        """
        self._check()
        # Refused here, as the server would close the connection over a frame that is too long, and again over its repeat.
        check_text(content)
        _check_session(session)
        name = check_message_id(message_id) if message_id is not None else f"live-{uuid.uuid4().hex}"
        if name in self._sends:
            raise Conflict("this client is sending under that id already", path="message_id")
        frame = {"type": "send", "session": session, "content": content, "message_id": name}
        question = self._sends[name] = _Question(frame)
        try:
            self._say(frame)
            while True:
                answer = await question.wait()
                if isinstance(answer, Accepted):
                    return answer
                await self._again(answer)
                self._say(frame)
        finally:
            del self._sends[name]

    async def navigate(self, session: str) -> Navigated:
        """Have the server note that this client's user goes to a session (by id), however many connections that takes.

        Needs the id that `connect` gives at the handshake. What is subscribed after the call has begun is sent behind its answer. Raises
        `UnknownTarget`; cancelled, whether it was noted is unknown: going there again is the same.
        """
        self._check()
        _check_session(session)
        question = _Question({"type": "navigate", "session": session})
        self._navigations.append(question)
        try:
            self._ask(question)
            while True:
                answer = await question.wait()
                if isinstance(answer, Navigated):
                    return answer
                await self._again(answer)
                self._ask(question)
        finally:
            self._navigations.remove(question)

    async def _again(self, answer: _Answer) -> None:
        """Wait until a refusal may have passed; any other is raised."""
        assert isinstance(answer, CallboardError)
        if self._failure is not None or not (isinstance(answer, Unavailable) and answer.status == 503):
            raise answer
        await trio.sleep(RESEND_SECONDS)

    async def stop(self, session: str) -> None:
        """Stop the turn that a session (by id) runs. Raises `Inactive`, `UnknownTarget`; `Unavailable` if the connection is lost meanwhile,
        as repeating it could stop the next turn.
        """
        self._check()
        _check_session(session)
        if self._link is None:
            raise Unavailable("there is no connection at the moment")
        question = _Question({"type": "stop", "session": session})
        self._ask(question)
        answer = await question.wait()
        if isinstance(answer, CallboardError):
            raise answer

    # -- connections ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep connected until cancelled, or refused for good: then everybody who waits is told. For `connect`."""
        pause = FIRST_PAUSE
        while True:
            began = trio.current_time()
            link = Link(self._address, self._opened, self._heard)
            try:
                reason = await link.run()
            except CallboardError as refusal:
                self.fail(refusal)
                return
            finally:
                self._lost()
            if not self._first.is_set():
                self.fail(Unavailable(f"the server can't be reached: {reason}", path="url"))
                return
            pause = FIRST_PAUSE if trio.current_time() - began > STEADY_SECONDS else min(2 * pause, LONGEST_PAUSE)
            log.info("the connection was lost (%s); trying again", reason)
            await trio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 (so that clients do not come back all at once)

    async def opened(self) -> None:
        """Wait for the first connection. Raises the refusal, or `Unavailable` if there is no server."""
        await self._first.wait()
        self._check()

    async def close(self) -> None:
        """Take leave of the server; from here on nobody is told of changes."""
        self._closing = True
        if self._link is not None:
            with trio.move_on_after(CLOSE_SECONDS):
                await self._link.close()

    def end(self) -> None:
        """The block is left, by whatever way."""
        self._closing = True
        self.fail(Unavailable("this client is closed"))

    def fail(self, error: CallboardError) -> None:
        """Nothing will be answered any more."""
        self._failure = self._failure or error
        self._first.set()
        for subscription in self._subscriptions.values():
            subscription.fail(error)
        for question in (*self._sends.values(), *self._navigations):
            question.settle(error)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _opened(self, link: Link) -> None:
        self._link = link
        self._first.set()
        for question in self._navigations:
            self._ask(question)  # first: what is followed then comes behind the answer
        for subscription in self._subscriptions.values():
            self._subscribe(subscription)
        for question in self._sends.values():
            self._say(question.frame)
        self._changed(True)

    def _lost(self) -> None:
        if self._link is None:
            return
        self._link = None
        for subscription in self._subscriptions.values():
            subscription.lost()
        waiting, self._asked = self._asked, {}
        stops = [
            question for line in waiting.values() for question in line if question not in (None, *self._navigations)
        ]
        for question in stops:
            assert question is not None
            question.settle(Unavailable("the connection was lost; whether the turn stops is unknown"))
        self._changed(False)

    def _changed(self, connected: bool) -> None:
        if self._on_change is not None and not self._closing:
            self._on_change(connected)

    def _say(self, frame: dict[str, Any]) -> None:
        if self._link is not None:
            self._link.say(frame)

    def _ask(self, question: _Question) -> None:
        """Say what is answered by its session, in order; nothing while there is no connection."""
        if self._link is not None:
            self._asked.setdefault(question.frame["session"], deque()).append(question)
            self._say(question.frame)

    def _subscribe(self, subscription: Subscription) -> None:
        frame = subscription.resume
        if frame is not None and self._link is not None:
            self._asked.setdefault(subscription.session, deque()).append(None)
            self._say(frame)

    def _asked_by(self, subscription: Subscription, wish: str) -> None:
        if wish == "subscribe":
            self._subscribe(subscription)
            return
        self._say({"type": "unsubscribe", "session": subscription.session})
        if wish == "leave" and self._subscriptions.get(subscription.session) is subscription:
            del self._subscriptions[subscription.session]

    # -- what the server says ------------------------------------------------------------------------------------------

    def _heard(self, frame: dict[str, Any]) -> None:
        """One frame. Types that are not known are left aside: a newer server may say more."""
        session = frame.get("session")
        subscription = self._subscriptions.get(session) if isinstance(session, str) else None
        match frame:
            case {"type": "event", "id": int(number), "kind": str(kind)} if subscription:
                subscription.take(LiveEvent(subscription.session, number, kind, frame["data"]))
            case {"type": "resync", "after": int(after), "oldest": int(oldest)} if subscription:
                data = {"after": after, "oldest": oldest}
                subscription.take(LiveEvent(subscription.session, after, "resync", data))
            case {"type": "subscribed", "session": str(name), "newest": int(newest)}:
                self._next_asked(name)
                if subscription is not None:
                    subscription.confirmed(newest)
            case {"type": "accepted", "message_id": str(name)} if name in self._sends:
                self._sends[name].settle(_accepted(frame))
            case {"type": "stopping", "session": str(name)}:
                question = self._next_asked(name)
                if question is not None:
                    question.settle(None)
            case {"type": "navigated", "session": str(name)}:
                question = self._next_asked(name)
                if question is not None:
                    question.settle(Navigated(name, {**frame["frontiers"]}))
            case {"type": "error", "code": "not_subscribed"}:
                pass  # we left a session that the server had dropped already
            case {"type": "error", "code": str(code), "message": str(message)}:
                self._refused(frame, error_named(code, message))
            case _:
                log.debug("a frame was left aside: %r", frame.get("type"))

    def _refused(self, frame: dict[str, Any], error: CallboardError) -> None:
        name, session = frame.get("message_id"), frame.get("session")
        if isinstance(name, str):
            if name in self._sends:
                self._sends[name].settle(error)
            return
        if not isinstance(session, str):
            raise Rejected(f"the server refuses what this client says: {error.message}")
        question = self._next_asked(session)
        if question is not None:
            question.settle(error)
        elif isinstance(error, UsageError) and session in self._subscriptions:
            self._subscriptions.pop(session).fail(error)
        elif session in self._subscriptions:
            # Not now: the next connection begins anew with all cursors.
            raise error

    def _next_asked(self, session: str) -> _Question | None:
        line = self._asked.get(session)
        question = line.popleft() if line else None
        if line is not None and not line:
            del self._asked[session]
        return question


def _check_session(session: str) -> None:
    """The server would close the connection over a longer name, and again over its repeat."""
    if len(session) > SESSION_LENGTH:
        raise InvalidField(f"has {len(session)} characters, {SESSION_LENGTH} are allowed", path="session")


def _accepted(frame: dict[str, Any]) -> Accepted:
    return Accepted(
        frame["session"], frame["message_id"], bool(frame["created"]), str(frame["status"]), int(frame["seq"])
    )


@asynccontextmanager
async def connect(
    url: str,
    token: str,
    *,
    client: str | None = None,
    tls: ssl.SSLContext | None = None,
    on_change: Callable[[bool], None] | None = None,
) -> AsyncIterator[LiveClient]:
    """Connect to the server at `url` (`http://127.0.0.1:8420`, `https://…`) and stay connected while the block lasts.

    `client` is a name that the server keeps for this client; `on_change` is called with True at each connection and False at its loss, but
    not once the block is left. The
    first connection must succeed: raises `Unauthorized` and other refusals, `Unavailable` if there is no server, `InvalidField`.
    """
    address = address_of(url, token, client=None if client is None else check_client_id(client), tls=tls)
    live = LiveClient(address, on_change)
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(live.run)
        try:
            await live.opened()
            yield live
            await live.close()
        except Exception as error:
            failure = error  # raised below: out of the nursery it would come as a group
        finally:
            live.end()
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
