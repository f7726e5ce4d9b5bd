"""What people do while processes of a fleet are killed: they post, stop turns and follow sessions, over whichever process answers.

Here: senders over HTTP and with the store open, followers on websockets, what each was told. Not here: what is posted (`fleet_plan`),
judging (`fleet_checks`). Invariant: a sender repeats a message under its id until somebody has accepted it, so it is sent once.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import attrs
import httpx
import trio

from callboard import client
from callboard.storage.model.addresses import Scope, session_address
from callboard.storage.model.errors import Unavailable
from callboard.storage.model.states import OPEN
from callboard.storage.ops.inbox import enqueue
from callboard.storage.store import Store
from callboard.supervisors.runtime import OPERATOR
from callboard.tests.crash.fleet import Fleet, Member
from callboard.tests.crash.fleet_plan import FAILED, PLACES, ROLES, text_for

SCOPE = Scope()
TIMEOUT = httpx.Timeout(2.5, connect=1.0)
FAILURE_SECONDS = 40.0
"""What five attempts take, with the pauses between them: a shorter run does without."""
AGAIN = {429, 500, 502, 503, 504}
FOLLOWED = (
    "/nothing/0",
    "/nothing/1",
    "/stream/0",
    "/stream/1",
    "/lasting/0",
    "/relay/0",
    "/tinker/0",
    "/slow/0",
    "/parent/0",
)
"""Sessions that are followed on each process."""


@attrs.define
class Told:
    """What people were promised: by message id, its place in the transcript; and the events that each follower has seen."""

    accepted: dict[str, int] = attrs.field(factory=dict[str, int])
    repeated: int = 0
    seen: dict[tuple[str, str], list[int]] = attrs.field(factory=dict[tuple[str, str], list[int]])


class People:
    """Everybody. `store` is a program's own, in no process of the fleet; it tells what changes."""

    def __init__(self, fleet: Fleet, store: Store, seed: int) -> None:
        self.told = Told()
        self.sessions: dict[str, str] = {}
        self._fleet = fleet
        self._store = store
        self._turns = count()
        self._chance = random.Random(seed)
        self._http = httpx.AsyncClient(timeout=TIMEOUT, trust_env=False, limits=httpx.Limits(max_connections=200))

    async def meet(self) -> None:
        """Find the sessions, which the processes have opened."""
        for path in PLACES:
            self.sessions[path] = (await self._store.reads.session_at(SCOPE, path)).id

    async def work(self, seconds: float) -> None:
        """Post for so long, then until everything is accepted."""
        end = trio.current_time() + seconds
        async with trio.open_nursery() as nursery:
            for path in PLACES:
                name = path.split("/")[1]
                if name in ROLES and (name not in FAILED or seconds >= FAILURE_SECONDS):
                    nursery.start_soon(self._talk, path, end)

    async def _talk(self, path: str, end: float) -> None:
        name = path.split("/")[1]
        role = ROLES[name]
        for k in range(role.most):
            # The pace of the load; nothing is waited for by it.
            await trio.sleep(role.pause * self._chance.uniform(0.5, 1.5))
            if trio.current_time() >= end:
                return
            message_id = f"{path[1:].replace('/', '.')}.{k}"
            await (self._send_inside if name == "inside" else self._send)(path, text_for(path, k), message_id)
            if name == "slow":
                await self._stop(path, message_id)

    # -- sending ---------------------------------------------------------------------------------------------------------

    async def _send(self, path: str, content: str, message_id: str) -> None:
        body = {"content": content, "message_id": message_id}
        answer = await self.ask("POST", f"/v1/sessions/{self.sessions[path]}/messages", body)
        assert answer.status_code == 202, f"{message_id}: {answer.status_code} {answer.text}"
        receipt = answer.json()
        self._accepted(message_id, receipt["seq"], receipt["created"])

    async def _send_inside(self, path: str, content: str, message_id: str) -> None:
        op = enqueue(SCOPE, session_address(self.sessions[path]), OPERATOR, content, message_id=message_id)
        while True:
            try:
                receipt = await self._store.apply(op)
            except Unavailable:
                await trio.sleep(0.1)  # the database starts anew
            else:
                self._accepted(message_id, receipt.seq, receipt.created)
                return

    def _accepted(self, message_id: str, seq: int, created: bool) -> None:
        self.told.accepted[message_id] = seq
        self.told.repeated += not created

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        """The answer of the next process that gives one."""
        while True:
            member = self._fleet.members[next(self._turns) % len(self._fleet.members)]
            headers = {"Authorization": f"Bearer {member.token}"}
            try:
                answer = await self._http.request(method, member.url + path, json=body, headers=headers)
            except httpx.HTTPError:
                # Killed, paused, or about to serve again: the next one may answer. A pause, as a refusal comes at once.
                await trio.sleep(0.05)
                continue
            if answer.status_code not in AGAIN:
                return answer
            await trio.sleep(0.1)

    async def _stop(self, path: str, message_id: str) -> None:
        """Stop the turn of a message, once it runs, until it is final."""

        async def stopped() -> bool:
            if (await self._store.reads.message(SCOPE, message_id, principal=OPERATOR.principal)).status not in OPEN:
                return True
            await self.ask("POST", f"/v1/sessions/{self.sessions[path]}/stop", {})
            return False

        await self.until(stopped)

    # -- waiting and following -------------------------------------------------------------------------------------------

    async def settled(self) -> None:
        """Wait until no mailbox is due at any time, or held."""

        async def nothing_left() -> bool:
            return await self._store.reads.counts(float("inf")) == (0, 0)

        await self.until(nothing_left)

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Wait until something holds. Look again at every change; once a second too, as hints may be lost."""
        changed = trio.Event()

        def change(_: int) -> None:
            changed.set()

        with self._store.changes.watch(None, change):
            while True:
                try:
                    if await holds():
                        return
                except Unavailable:
                    pass
                with trio.move_on_after(1):
                    await changed.wait()
                changed = trio.Event()
                await trio.sleep(0.05)  # under load something changes all the time

    async def follow(self, member: Member, *, task_status: trio.TaskStatus[None]) -> None:
        """Follow sessions on one process, over all of its lives, until cancelled."""
        async with client.connect(member.url, member.token) as board, trio.open_nursery() as nursery:
            for path in FOLLOWED:
                seen = self.told.seen[member.name, self.sessions[path]] = []
                nursery.start_soon(_read, board.subscribe(self.sessions[path]), seen)
            task_status.started()

    async def followed(self) -> None:
        """Wait until every follower has seen the newest event of each of its sessions."""

        async def all_seen() -> bool:
            for (_, session), seen in self.told.seen.items():
                newest = (await self._store.reads.session(SCOPE, session)).newest_event
                if len(seen) < newest and (not seen or seen[-1] < newest):
                    return False
            return True

        await self.until(all_seen)

    async def aclose(self) -> None:
        await self._http.aclose()


async def _read(events: client.Subscription, seen: list[int]) -> None:
    async for event in events:
        seen.append(event.id if event.kind != "resync" else -event.id)
