"""The websocket `/v1/live`: many sessions over one connection, each followed by cursor.

Lives here: the handshake, a client's commands in the order they came, the end of a connection. Not here: pushing events
(subscriptions), sends that follow each other (sends), frames on the wire (frames), the front's own limits.

Invariant: nothing exists only on a socket (EVT-2). Whatever fails here ends this connection and stops no turn; a client that comes back
with its cursors has missed nothing.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl

import trio
import trio_websocket

from ...storage.model.errors import CallboardError, InvalidField, NotFound, UnknownTarget, UsageError, bounded
from ...storage.model.ids import check_client_id
from ...storage.wire import parse_object
from .auth import Principal
from .commands import (
    AlreadySubscribed,
    BinaryFrame,
    Command,
    Navigate,
    NotSubscribed,
    Send,
    Stop,
    Subscribe,
    TooManySubscriptions,
    UnnamedClient,
    Unsubscribe,
    command_from,
    subject_of,
)
from .edge import Edge
from .errors import error_response
from .fields import check_origin
from .frames import FrameStream, encode_text_frame
from .sends import Sends, open_sends
from .subscriptions import Batches, Subscription
from .views import dump, receipt_view

log: Final = logging.getLogger("callboard.live")
PATH: Final = "/v1/live"
SUBPROTOCOL: Final = "callboard.v1"
CLIENT: Final = "client"
TICKET: Final = "ticket"
SUBSCRIPTIONS_MOST: Final = 64
ALONE_BYTES: Final = 128 * 1024
"""A larger frame than any that can be accepted: it is refused by itself, and no window of such frames is held in memory."""
_TOO_SLOW: Final = (1013, "too slow, resume by cursor")
_MUTE: Final = (1011, "no answer to a ping")
_REFUSED: Final = (1008, "the credential is not valid any more")


class Live:
    """All websockets of one front: what `Server` calls for each."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._batches = Batches()

    async def __call__(self, request: trio_websocket.WebSocketRequest, stream: FrameStream) -> None:
        try:
            principal, client = await self._admit(request, stream)
        except CallboardError as refusal:
            answer = error_response(refusal)
            headers = [field for field in answer.raw_headers if field[0] != b"content-length"]
            await request.reject(answer.status_code, extra_headers=headers, body=bytes(answer.body))
            return
        chosen = SUBPROTOCOL if request.proposed_subprotocols else None
        websocket = await request.accept(subprotocol=chosen)
        await Conversation(self._edge, principal, client, self._batches, stream, websocket).run()

    async def _admit(
        self, request: trio_websocket.WebSocketRequest, stream: FrameStream
    ) -> tuple[Principal, str | None]:
        """Who opens this websocket, and the id of their client, if it gives one. Raises what it is refused with."""
        headers = [*request.headers, (b"host", stream.host.encode("ascii"))]
        path, _, query = request.path.partition("?")
        given = parse_qsl(query, keep_blank_values=True)
        tickets = [value for name, value in given if name == TICKET] if path == PATH else []
        # A ticket is used up last, so that a handshake which is wrong in itself does not cost one.
        principal = None if tickets else await self._edge.auth.principal(headers)
        check_origin(headers, self._edge.hosts, required=principal is not None and principal.by_cookie)
        if path != PATH:
            raise NotFound("there is no such address here")
        seen: dict[str, str] = {}
        for name, value in given:
            if name not in (CLIENT, TICKET):
                raise InvalidField("is not a parameter of this address", path=name)
            if name in seen:
                raise InvalidField("may be given once", path=name)
            seen[name] = value
            if name == CLIENT:
                check_client_id(value)
        if request.proposed_subprotocols and SUBPROTOCOL not in request.proposed_subprotocols:
            raise InvalidField(f"must offer {SUBPROTOCOL}", path="Sec-WebSocket-Protocol")
        return principal or await self._edge.auth.redeem(tickets[0]), seen.get(CLIENT)


class Conversation:
    """One websocket from its acceptance to its end."""

    def __init__(
        self,
        edge: Edge,
        principal: Principal,
        client: str | None,
        batches: Batches,
        stream: FrameStream,
        websocket: trio_websocket.WebSocketConnection,
    ) -> None:
        self._edge = edge
        self._principal = principal
        self._client = client
        self._batches = batches
        self._stream = stream
        self._websocket = websocket
        self._subscriptions: dict[str, Subscription] = {}
        self._sends: Sends
        self._closing: tuple[int, str] | None = None
        self._heard = 0.0
        self._hearing = trio.CancelScope()

    async def run(self) -> None:
        """Serve the client until it leaves, or must."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._keep_alive)
            if self._principal.credential is not None:
                self._nursery.start_soon(self._keep_right)
            try:
                async with open_sends(self._answer, self._edge.pace.close) as self._sends:
                    await self._listen()
            finally:
                # Before the nursery closes: a tail that pushes later would find no place for the task that catches up.
                for subscription in self._subscriptions.values():
                    subscription.leave()
            self._nursery.cancel_scope.cancel()
        if self._closing is not None:
            log.info("a websocket is closed: %s", self._closing[1])
            with trio.move_on_after(self._edge.pace.close):
                await self._websocket.aclose(*self._closing)

    async def _listen(self) -> None:
        with self._hearing:
            try:
                while True:
                    message = await self._websocket.get_message()
                    self._heard = trio.current_time()
                    await self._hear(message)
            except trio_websocket.ConnectionClosed:
                return

    async def _hear(self, message: str | bytes) -> None:
        """Carry out one frame, or begin to. What is refused is answered with an error frame, and the connection goes on."""
        subject: dict[str, str] = {}
        try:
            if isinstance(message, bytes):
                raise BinaryFrame("frames must be text")
            frame = parse_object(message)
            subject = subject_of(frame)
            command = command_from(frame)
            if isinstance(command, Send) and len(message) <= ALONE_BYTES:
                await self._sends.add(partial(self._send, command), partial(_error, subject=subject))
                return
            await self._sends.settled()
            await self._obey(command)
        except CallboardError as error:
            # In its place, also where the frame could not be read.
            await self._sends.settled()
            await self._say(_error(error, subject))

    async def _obey(self, command: Command) -> None:
        match command:
            case Subscribe():
                await self._subscribe(command)
            case Unsubscribe(session):
                if session not in self._subscriptions:
                    raise NotSubscribed("this connection does not follow that session", path="session")
                self._subscriptions.pop(session).leave()
            case Send():
                await self._say(await self._send(command))
            case Stop(session):
                await self._edge.desk.stop(self._principal.scope, session)
                await self._say({"type": "stopping", "session": session})
            case Navigate(session):
                await self._navigate(session)

    async def _send(self, command: Send) -> dict[str, Any]:
        """What a send is answered with."""
        who, session = self._principal, command.session
        receipt = await self._edge.desk.send(
            who.scope, session, command.content, who.sender, message_id=command.message_id
        )
        return {"type": "accepted", "session": session, **receipt_view(receipt)}

    async def _navigate(self, session: str) -> None:
        if self._client is None:
            raise UnnamedClient("navigate needs the parameter client at the handshake")
        who = self._principal
        went = await self._edge.desk.navigate(
            who.scope, who.sender.principal, self._client, session, also=tuple(self._subscriptions)
        )
        await self._say({"type": "navigated", "session": session, "frontiers": went.frontiers})

    async def _answer(self, frame: dict[str, Any]) -> None:
        try:
            await self._say(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            # The client is gone: nothing more is heard, and what it has sent before is committed without being told.
            self._hearing.cancel()

    async def _subscribe(self, command: Subscribe) -> None:
        session = command.session
        if session in self._subscriptions:
            raise AlreadySubscribed("this connection follows that session", path="session")
        if len(self._subscriptions) >= SUBSCRIPTIONS_MOST:
            raise TooManySubscriptions(f"{SUBSCRIPTIONS_MOST} subscriptions a connection are allowed")
        scope = self._principal.scope
        page = await self._edge.desk.store.reads.events(scope, session, after=command.after)
        if page.closed:
            raise UnknownTarget("there is no such session here", path="session")
        await self._say({"type": "subscribed", "session": session, "newest": page.newest})
        subscription = self._subscriptions[session] = Subscription(
            self._edge.desk,
            scope,
            session,
            command.after,
            self._batches,
            self._stream,
            self._nursery,
            self._deliver,
            self._drop,
        )
        subscription.start(page)

    async def _drop(self, subscription: Subscription, error: CallboardError) -> None:
        """A session can't be followed any more: it was deleted, or the store is down."""
        if self._subscriptions.get(subscription.session) is subscription:
            del self._subscriptions[subscription.session]
        await self._say(_error(error, {"session": subscription.session}))

    async def _say(self, frame: dict[str, Any]) -> None:
        await self._deliver(encode_text_frame(dump(frame)))

    async def _deliver(self, frames: bytes) -> None:
        """Write whole frames, at once if that can be, else within the time limit; past it this connection ends."""
        if self._stream.try_send(frames):
            await trio.lowlevel.checkpoint()
            return
        with trio.move_on_after(self._edge.pace.slow) as waiting:
            await self._stream.send_frame(frames)
        if waiting.cancelled_caught:
            await self._end(_TOO_SLOW)

    async def _keep_alive(self) -> None:
        """Ping; end the connection of a client from which nothing has come in time: a pong waits behind its own backlog of frames."""
        while True:
            await trio.sleep(self._edge.pace.ping)
            asked = trio.current_time()
            with trio.move_on_after(self._edge.pace.ping) as waiting:
                await self._websocket.ping()
            if waiting.cancelled_caught and self._heard < asked:
                await self._end(_MUTE)

    async def _keep_right(self) -> None:
        """End the connection once its credential is no longer good."""
        await self._edge.auth.until_refused(self._principal, self._edge.pace.recheck)
        await self._end(_REFUSED)

    async def _end(self, closing: tuple[int, str]) -> None:
        self._closing = self._closing or closing
        self._nursery.cancel_scope.cancel()
        await trio.lowlevel.checkpoint()


def _error(error: CallboardError, subject: dict[str, str]) -> dict[str, Any]:
    # An error's path is a field for the client's own mistakes; for the store's it would be a file.
    text = str(error) if isinstance(error, UsageError) else error.message
    return {"type": "error", "code": error.code, "message": bounded(text), **subject}
