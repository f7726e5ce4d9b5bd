"""A user who was just taken somewhere and speaks: the answer is heard, however quick it is.

Not here: who is taken where (`test_client_handoffs`).
"""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from callboard import client
from callboard.actors.client.live import LiveClient
from callboard.actors.client.subscription import Subscription
from callboard.tests.flows.test_client_handoffs import Gates, front_of, served_by, told


class Late(Subscription):
    """It is confirmed as late as a test wants it."""

    may = trio.Event()

    async def __anext__(self) -> client.LiveEvent:
        await self.may.wait()
        return await super().__anext__()


@pytest.mark.spec("HND-4")
async def test_what_is_said_behind_a_handoff_waits_until_the_target_is_listened_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    send, subscribe = LiveClient.send, LiveClient.subscribe

    async def sending(self: LiveClient, session: str, text: str, **more: str) -> client.Accepted:
        sent.append(text)
        return await send(self, session, text, **more)

    def subscribing(self: LiveClient, session: str, *, after: int = 0) -> Subscription:
        found = subscribe(self, session, after=after)
        found.__class__ = Late
        return found

    async with served_by(Gates(), tmp_path) as served, front_of(served) as front:
        await front.say("to /ops/deploy")
        monkeypatch.setattr(Late, "may", trio.Event())
        monkeypatch.setattr(LiveClient, "subscribe", subscribing)
        monkeypatch.setattr(LiveClient, "send", sending)
        await told(front, client.Opened, by=client.By.HANDOFF)
        accepted: list[client.Accepted] = []

        async def speak() -> None:
            accepted.append(await front.say("hello"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(speak)
            for _ in range(50):
                await trio.lowlevel.checkpoint()
            assert sent == []
            Late.may.set()
        ended = await told(front, client.Ended, message_id=accepted[0].message_id)
        assert ended.show.whole == "/ops/deploy heard hello"
