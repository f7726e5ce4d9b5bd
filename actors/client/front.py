"""One person's place at a server, for a terminal, a voice or anything else that has one open session: `open_front`.

Lives here: carrying out what the rules decide, following the open session and those whose answers are still awaited, back and up. Not here:
the rules (`handoffs`), the connection (`live`), how anything looks or sounds.

Invariant: a post goes to the session that is open when it is posted, and nothing but the user and the rules changes which one that is; so
whoever speaks through a front speaks to the open session (the voice follows it, and nothing is routed by what was said).
"""

from __future__ import annotations

import ssl
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

from ...storage.model.errors import CallboardError, Unavailable, UnknownTarget
from .conversation import Show, ShowKind
from .followed import FROM_NOW, Followed, look_back
from .handoffs import Handoff, Key, Rules, Verdict, handoff_of, post_id
from .live import Accepted, LiveClient, connect
from .memory import TRAIL_MOST, InMemory, Kept, Remembered
from .notices import By, Ended, Notice, Offered, Opened, Refused, Said, ended_with
from .rest import Place, Rest, open_rest
from .subscription import LiveEvent

NOTICES_MOST: Final = 256
"""What may wait for a slow reader: past it events are read no further."""
WATCHED_MOST: Final = 8
RETRY_SECONDS: Final = 1.0


class Front:
    """Get one from `open_front`. Iterate it for what happens: it never ends by itself, and raises if the open session is gone."""

    def __init__(self, live: LiveClient, rest: Rest, memory: Remembered, kept: Kept, nursery: trio.Nursery) -> None:
        self._live = live
        self._rest = rest
        self._memory = memory
        self._nursery = nursery
        self._rules = Rules(kept.client, opened=kept.open, handled=kept.handled)
        self._trail = [*kept.trail]
        self._place: Place | None = None
        self._moves = 0
        self._followed: dict[str, Followed] = {}
        self._awaited: dict[str, str] = {}
        """Our posts without an end, and the session of each."""
        self._held: list[tuple[Followed, Handoff]] = []
        self._offered: set[Key] = set()
        self._notices: deque[Notice] = deque()
        self._error: CallboardError | None = None
        self._news = trio.Event()
        self._read = trio.Event()

    @property
    def client(self) -> str:
        """The id that this client has at the server."""
        return self._rules.client

    @property
    def open(self) -> Place:
        """The open session: where a post goes now."""
        assert self._place is not None
        return self._place

    @property
    def running(self) -> str | None:
        """The message id of the turn under way in the open session."""
        followed = self._followed.get(self.open.session)
        return followed.conversation.running if followed else None

    def __aiter__(self) -> Front:
        return self

    async def __anext__(self) -> Notice:
        await trio.lowlevel.checkpoint()
        while not self._notices:
            if self._error is not None:
                raise self._error
            await self._news.wait()
            self._news = trio.Event()
        notice = self._notices.popleft()
        self._read.set()
        return notice

    async def say(self, text: str, *, message_id: str | None = None) -> Accepted:
        """Post to the open session; returns once it is accepted. `Ended` tells of its end, wherever the user is by then.

        Raises as `LiveClient.send` does.
        """
        name, session = message_id or post_id(self.client), self.open.session
        self._awaited[name] = session
        followed = self._followed.get(session)
        try:
            if followed is not None and followed.fresh:
                # The user has just been taken there. An answer may be quicker than the server is to say from where on it is listened to.
                await followed.heard.wait()
            return await self._live.send(session, text, message_id=name)
        except BaseException:
            self._forget(name)
            raise

    async def stop(self) -> None:
        """Stop the turn of the open session. Raises as `LiveClient.stop` does."""
        await self._live.stop(self.open.session)

    async def navigate(self, where: str) -> Place:
        """Go to a session by path or id, as the user wishes: handoffs up to now are void. Raises `UnknownTarget`, `InvalidField`, `Unavailable`."""
        place = await self._rest.place(where)
        await self._go(place)
        return place

    async def back(self) -> Place | None:
        """Go to the session before the open one; None if there is none. Raises as `navigate` does."""
        while self._trail:
            try:
                place = await self._rest.place(self._trail[-1])
            except UnknownTarget:
                self._trail.pop()  # it was deleted meanwhile
                continue
            self._trail.pop()
            await self._go(place, trail=False)
            return place
        return None

    async def up(self) -> Place | None:
        """Go to the nearest session above: by path, or the one that opened it; None at the top. Raises as `navigate` does."""
        for above in self.open.above:
            try:
                return await self.navigate(above)
            except UnknownTarget:
                continue  # a level without a session
        return None

    async def accept(self, offer: Handoff) -> Place:
        """Go where a handoff leads, as the user wishes. Raises as `navigate` does."""
        place = await self._rest.place(offer.channel_id)
        self._rules.settle(offer)
        await self._go(place)
        return place

    def decline(self, offer: Handoff) -> None:
        """Do not offer it again."""
        self._rules.settle(offer)
        self._save()

    # -- going somewhere -----------------------------------------------------------------------------------------------

    async def begin(self, place: Place, *, reload: bool) -> None:
        """Open the first session. For `open_front`; a reload looks at the session's last result, anything else is the user's navigation.

        So is a reload of which the server does not know any more where this client went last: nothing could be found to be older than that.
        """
        known = await self._rest.frontiers(self.client) if reload else None
        if known is None:
            await self._go(place, By.START)
            return
        self._place = place
        self._tell(Opened(place, By.START))
        self._rules.navigated(known)
        followed, missed = await look_back(self._live, self._rest, place)
        self._followed[place.session] = followed
        if followed.conversation.text:
            running = followed.conversation.running or ""
            self._tell(Said(place, Show(ShowKind.TEXT, followed.conversation.text, running, streaming=True)))
        self._nursery.start_soon(self._pump, followed, missed)

    async def _go(self, place: Place, by: By = By.USER, *, trail: bool = True) -> None:
        before = self._place
        self._switch(place, trail=trail)
        self._rules.navigate(place.session)
        self._save()
        self._tell(Opened(place, by))
        self._leave(before)
        # In a task: whoever asked may be cancelled, and the session is open all the same.
        noted = trio.Event()
        self._nursery.start_soon(self._note, place, self._moves, noted)
        await noted.wait()

    async def _note(self, place: Place, move: int, noted: trio.Event) -> None:
        """Have the server note where the user went, and listen from there."""
        try:
            answer = await self._live.navigate(place.session)
        except CallboardError as error:
            if move == self._moves:
                self._fail(error)
            return
        finally:
            noted.set()
        if move != self._moves:
            return  # the user has gone on meanwhile
        self._rules.navigated(answer.frontiers)
        self._offered = {offer for offer in self._offered if offer.id > answer.frontiers.get(offer.session, 0)}
        self._save()
        self._listen(place, after=answer.frontiers[place.session])
        held, self._held = self._held, []
        for followed, handoff in held:
            await self._act(followed, handoff)

    def _switch(self, place: Place, *, trail: bool = True) -> None:
        if trail and self._place is not None and self._place.session != place.session:
            self._trail.append(self._place.session)
            del self._trail[:-TRAIL_MOST]
        self._place = place
        self._moves += 1

    def _save(self) -> None:
        rules = self._rules
        self._memory.save(Kept(self.client, self.open.session, rules.handled, (*self._trail,), rules.going))

    # -- listening -----------------------------------------------------------------------------------------------------

    def _listen(self, place: Place, *, after: int) -> Followed:
        known = self._followed.get(place.session)
        if known is not None:
            return known
        followed = Followed(place, self._live.subscribe(place.session, after=after), fresh=after == FROM_NOW)
        self._followed[place.session] = followed
        self._nursery.start_soon(self._pump, followed)
        return followed

    async def _pump(self, followed: Followed, missed: Handoff | None = None) -> None:
        session = followed.place.session
        try:
            with followed.scope:
                if missed is not None:
                    await self._act(followed, missed)
                async for event in followed.events:
                    followed.heard.set()
                    while len(self._notices) >= NOTICES_MOST:
                        self._read = trio.Event()
                        await self._read.wait()
                    await self._take(followed, event)
        except CallboardError as error:
            if self._followed.get(session) is followed:
                del self._followed[session]
                if self.open.session == session:
                    self._fail(error)
        finally:
            followed.heard.set()

    async def _take(self, followed: Followed, event: LiveEvent) -> None:
        if event.kind == "turn.handoff":
            await self._act(followed, handoff_of(event.session, event.id, event.data))
        show = followed.conversation.see(event)
        if show is None:
            return
        if show.kind is not ShowKind.GAP or not followed.fresh:
            self._tell(Said(followed.place, show))
        followed.fresh = False
        if show.kind in (ShowKind.ANSWER, ShowKind.FAILED, ShowKind.GAP):
            await self._end(followed, show)

    async def _end(self, followed: Followed, show: Show) -> None:
        """A turn is over: with it its own message, and any other of ours that it took in or that ended unseen."""
        session = followed.place.session
        for name in [name for name, where in self._awaited.items() if where == session]:
            failed = show.kind is ShowKind.FAILED
            if name != show.message_id:
                try:
                    message = await self._rest.message(name)
                except CallboardError:
                    continue  # not accepted yet, or the server is away: the next end of a turn asks again
                if not ended_with(show, message):
                    continue
                failed = message["status"] == "failed"
            self._tell(Ended(followed.place, name, failed, show))
            self._forget(name)

    def _forget(self, name: str) -> None:
        session = self._awaited.pop(name, None)
        followed = self._followed.get(session) if session is not None else None
        if followed is not None:
            self._leave(followed.place)

    def _leave(self, place: Place | None) -> None:
        """Listen no longer to what is neither open nor awaited; of those that are awaited, to the newest few."""
        if place is None or place.session == self.open.session:
            return
        if place.session not in self._awaited.values():
            self._drop(place.session)
        while len(self._followed) > WATCHED_MOST:
            self._drop(next(session for session in self._followed if session != self.open.session))

    def _drop(self, session: str) -> None:
        followed = self._followed.pop(session, None)
        if followed is not None:
            followed.events.leave()
            followed.scope.cancel()
        for name in [name for name, where in self._awaited.items() if where == session]:
            del self._awaited[name]

    # -- handoffs ------------------------------------------------------------------------------------------------------

    async def _act(self, followed: Followed, handoff: Handoff) -> None:
        """Do what the rules say. A target is opened only once the server has let us see it, and then only if nothing has changed meanwhile."""
        target: Place | CallboardError | None = None
        while True:
            decision = self._rules.decide(handoff)
            if decision.verdict is not Verdict.FOLLOW:
                break
            if target is not None:
                self._follow(handoff, target)
                return
            target = await self._checked(handoff)
        if decision.verdict is Verdict.HOLD:
            self._held.append((followed, handoff))
        elif decision.verdict is Verdict.OFFER and handoff.key not in self._offered:
            self._offered.add(handoff.key)
            self._tell(Offered(followed.place, handoff, decision.why))

    async def _checked(self, handoff: Handoff) -> Place | CallboardError:
        while True:
            try:
                return await self._rest.place(handoff.channel_id)
            except Unavailable:
                await trio.sleep(RETRY_SECONDS)
            except CallboardError as refusal:
                return refusal

    def _follow(self, handoff: Handoff, target: Place | CallboardError) -> None:
        if isinstance(target, CallboardError):
            self._rules.settle(handoff)
            self._save()
            self._tell(Refused(handoff, target))
            return
        before = self._place
        self._switch(target)
        self._rules.followed(handoff)
        self._save()
        self._tell(Opened(target, By.HANDOFF, handoff))
        self._leave(before)
        self._listen(target, after=FROM_NOW)

    def _tell(self, notice: Notice) -> None:
        self._notices.append(notice)
        self._news.set()

    def _fail(self, error: CallboardError) -> None:
        self._error = error
        self._news.set()


@asynccontextmanager
async def open_front(
    url: str,
    token: str,
    where: str | None = None,
    *,
    client: str | None = None,
    memory: Remembered | None = None,
    tls: ssl.SSLContext | None = None,
    on_change: Callable[[bool], None] | None = None,
) -> AsyncIterator[Front]:
    """Open the session at a path, or of an id; by default where `memory` says that this client was, else `/`.

    If it was there, this is a reload: a handoff that was missed is followed. `client` is its id (by default the kept one, or a new one): of
    another client nothing is kept. Raises as `connect` does, and `UnknownTarget`.
    """
    memory = memory or InMemory()
    kept = memory.load()
    if kept is None or client not in (None, kept.client):
        kept = Kept(client or f"front-{uuid.uuid4().hex}")
    failure: Exception | None = None
    async with (
        open_rest(url, token, tls) as rest,
        connect(url, token, client=kept.client, tls=tls, on_change=on_change) as live,
        trio.open_nursery() as nursery,
    ):
        front = Front(live, rest, memory, kept, nursery)
        try:
            place = await rest.place(where or kept.open or "/")
            await front.begin(place, reload=place.session == kept.open and not kept.going)
            yield front
        except Exception as error:
            failure = error  # raised below: out of the nursery it would come as a group
        finally:
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
