"""A front of the client library before a real server: a handoff is followed once, over reloads, restarts and replays, and drags nobody back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import attrs
import pytest
import trio

from callboard import Tuning, Turn, client
from callboard.actors.client import live
from callboard.storage.model.errors import UnknownTarget
from callboard.tests.flows.access_kit import member_key
from callboard.tests.flows.edge_kit import Served, serving_runtime
from callboard.tests.flows.shared_kit import shared_store
from callboard.tests.flows.test_client import relay

T = TypeVar("T")


@attrs.define
class Gates:
    """What a test lets happen: the handoff, and the end of its turn."""

    hand_over: trio.Event = attrs.field(factory=trio.Event)
    end: trio.Event = attrs.field(factory=trio.Event)

    async def guide(self, turn: Turn) -> str | None:
        """`to PATH …` at once; `late PATH …` when it may; anything else is said back."""
        word, *paths = turn.text.split()
        if word == "late":
            await self.hand_over.wait()
        if word in ("to", "late"):
            for path in paths:
                await turn.tools.connect_user(path)
            if word == "late":
                await self.end.wait()
            return "Taking you there."
        return f"{turn.session.path} heard {turn.text}"


@asynccontextmanager
async def served_by(gates: Gates, folder: Path, **settings: Any) -> AsyncIterator[Served]:
    async with serving_runtime(folder, agents={"guide": gates.guide}, **settings) as served:
        for path in ("/ops/deploy", "/research/pricing"):
            await served.runtime.open_session(path=path, agent="guide")
        yield served


@asynccontextmanager
async def front_of(
    served: Served, where: str | None = "/", memory: client.Remembered | None = None, url: str = ""
) -> AsyncIterator[client.Front]:
    async with client.open_front(url or served.url, served.token, where, memory=memory) as front:
        await told(front, client.Opened)
        yield front


async def told(front: client.Front, kind: type[T], **fields: Any) -> T:
    """The next notice of a kind, with these fields; before it, nothing but the user has opened another session."""
    async for notice in front:
        if isinstance(notice, kind) and all(getattr(notice, name) == value for name, value in fields.items()):
            return notice
        own = isinstance(notice, client.Opened) and notice.by is client.By.USER
        assert own or not isinstance(notice, (client.Opened, client.Offered, client.Refused)), notice
    raise AssertionError("a front never ends by itself")


async def echoed(front: client.Front) -> str:
    """Who hears what is said now."""
    accepted = await front.say("hello")
    return (await told(front, client.Ended, message_id=accepted.message_id)).show.whole


@pytest.mark.spec("HND-4", "HND-5")
async def test_a_handoff_moves_the_user_once_and_what_is_said_next_goes_there(tmp_path: Path, store_url: str) -> None:
    memory = client.InMemory()
    async with served_by(Gates(), tmp_path, store=store_url) as served, front_of(served, memory=memory) as front:
        assert (front.open.path, front.open.agent) == ("/", "guide")
        post = await front.say("to /ops/deploy")
        opened = await told(front, client.Opened)
        assert (opened.place.path, opened.by, opened.cue) == ("/ops/deploy", client.By.HANDOFF, "Now at deploy.")
        assert front.open == opened.place
        ended = await told(front, client.Ended)
        assert (ended.place.path, ended.message_id, ended.show.whole) == ("/", post.message_id, "Taking you there.")
        assert await echoed(front) == "/ops/deploy heard hello"
        assert memory.kept is not None
        assert (memory.kept.client, memory.kept.open) == (front.client, front.open.session)
        # In the same words to the same agent: nothing but the open session decides where it goes.
        await front.navigate("/research/pricing")
        assert await echoed(front) == "/research/pricing heard hello"


@pytest.mark.spec("HND-4")
async def test_what_the_target_has_handed_over_before_moves_nobody_on(tmp_path: Path, store_url: str) -> None:
    """A reload looks at the open session's last result; being handed over to a session does not, though it is newer than where the user went."""
    async with served_by(Gates(), tmp_path, store=store_url) as served, front_of(served) as front:
        deploy = await served.runtime.desk.find(served.runtime.scope, "/ops/deploy")
        await served.say(deploy.id, "to /research/pricing")
        await front.say("to /ops/deploy")
        assert (await told(front, client.Opened, by=client.By.HANDOFF)).place.session == deploy.id
        assert await echoed(front) == "/ops/deploy heard hello"
        assert front.open.session == deploy.id


@pytest.mark.spec("HND-3", "HND-4")
async def test_of_several_in_one_turn_the_first_is_followed_and_the_next_offered(tmp_path: Path) -> None:
    async with served_by(Gates(), tmp_path) as served, front_of(served) as front:
        await front.say("to /ops/deploy /research/pricing")
        assert (await told(front, client.Opened, by=client.By.HANDOFF)).place.path == "/ops/deploy"
        offered = await told(front, client.Offered)
        assert (offered.handoff.path, offered.why) == ("/research/pricing", client.Why.ELSEWHERE)


@pytest.mark.spec("HND-3", "HND-4")
async def test_a_reload_finds_one_that_was_missed_and_the_next_reload_does_not(tmp_path: Path, store_url: str) -> None:
    gates = Gates()
    memory = client.FileMemory(tmp_path / "client.json")
    async with served_by(gates, tmp_path, store=store_url) as served:
        async with front_of(served, memory=memory) as front:
            name, desk = front.client, front.open.session
            post = await front.say("late /ops/deploy /research/pricing")
        gates.hand_over.set()
        gates.end.set()
        await served.runtime.wait(post.message_id)
        async with front_of(served, None, memory) as front:
            assert (front.client, front.open.session) == (name, desk)
            assert (await told(front, client.Opened, by=client.By.HANDOFF)).place.path == "/research/pricing", (
                "the last one is the result"
            )
            kept = memory.load()
            assert kept is not None
            assert kept.handled[-1].session == desk
        # As if the file had been written before the user was moved, and the handoff handled all the same.
        memory.save(attrs.evolve(kept, open=desk))
        async with front_of(served, None, memory) as front:
            assert await echoed(front) == "/ heard hello"


@pytest.mark.spec("HND-4")
async def test_a_reload_in_the_middle_of_the_turn_follows_it_when_it_comes(tmp_path: Path) -> None:
    gates, memory = Gates(), client.InMemory()
    async with served_by(gates, tmp_path) as served:
        async with front_of(served, memory=memory) as front:
            desk = front.open.session
            await front.say("late /ops/deploy")
            await served.until(desk, "turn.started")
        async with front_of(served, "/", memory) as front:
            assert front.running is not None
            gates.hand_over.set()
            await told(front, client.Opened, by=client.By.HANDOFF)
        # And one that came while nobody was there, in a turn that has not ended yet.
        memory.save(attrs.evolve(memory.kept or client.Kept(""), open=desk, handled=()))
        async with front_of(served, "/", memory) as front:
            assert (await told(front, client.Opened, by=client.By.HANDOFF)).place.path == "/ops/deploy"
        gates.end.set()


@pytest.mark.spec("HND-2", "HND-4", "RT-9")
async def test_a_restart_of_the_server_in_the_middle(tmp_path: Path, store_url: str) -> None:
    gates, memory = Gates(), client.InMemory()
    async with trio.open_nursery() as nursery:
        stop, stopped = trio.Event(), trio.Event()
        ready: list[Served] = []

        async def first(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            async with served_by(gates, tmp_path, store=store_url, tuning=Tuning(stop_grace_seconds=0.1)) as served:
                ready.append(served)
                task_status.started()
                await stop.wait()
            stopped.set()

        await nursery.start(first)
        async with front_of(ready[0], memory=memory) as front:
            await front.say("late /ops/deploy")
            gates.hand_over.set()
            assert (await told(front, client.Opened, by=client.By.HANDOFF)).place.path == "/ops/deploy"
            # The turn is cut off behind its handoff, and runs again: the same event, which was acted upon.
            await front.back()
            await told(front, client.Opened, by=client.By.USER)
            desk = front.open.session
            stop.set()
            await stopped.wait()
            gates.end.set()
            async with served_by(gates, tmp_path, store=store_url, port=ready[0].port) as again:
                ended = await told(front, client.Ended)
                assert (ended.show.whole, front.open.session) == ("Taking you there.", desk)
                assert await echoed(front) == "/ heard hello"
                log = await again.log(desk)
    assert [kind for _, kind, _ in log].count("turn.handoff") == 1


@pytest.mark.spec("EVT-3", "HND-4")
async def test_over_lost_connections_each_moves_the_user_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LONGEST_PAUSE", live.FIRST_PAUSE)
    async with served_by(Gates(), tmp_path) as served, relay(served) as path, front_of(served, url=path.url) as front:
        for number in range(2):
            await front.say("to /ops/deploy")
            path.cut()
            opened = await told(front, client.Opened, by=client.By.HANDOFF)
            assert opened.place.path == "/ops/deploy", number
            path.cut()
            await front.back()
            path.cut()
        assert await echoed(front) == "/ heard hello"
        assert path.connections > 2


@pytest.mark.spec("HND-4")
async def test_a_user_who_has_gone_elsewhere_is_offered_what_comes_then(tmp_path: Path) -> None:
    gates = Gates()
    async with served_by(gates, tmp_path) as served, front_of(served) as front:
        post = await front.say("late /ops/deploy")
        await front.navigate("/research/pricing")
        await told(front, client.Opened, by=client.By.USER)
        gates.hand_over.set()
        offered = await told(front, client.Offered)
        assert (offered.place.path, offered.handoff.path, offered.why) == ("/", "/ops/deploy", client.Why.ELSEWHERE)
        gates.end.set()
        assert (await told(front, client.Ended)).message_id == post.message_id
        assert await echoed(front) == "/research/pricing heard hello"
        assert (await front.accept(offered.handoff)).path == "/ops/deploy"
        assert await told(front, client.Opened, by=client.By.USER)
        assert await echoed(front) == "/ops/deploy heard hello"


@pytest.mark.spec("HND-4")
async def test_one_that_is_older_than_where_the_user_went_is_void(tmp_path: Path, store_url: str) -> None:
    gates, memory = Gates(), client.InMemory()
    async with served_by(gates, tmp_path, store=store_url) as served:
        async with front_of(served, memory=memory) as front:
            post = await front.say("late /ops/deploy")
        gates.hand_over.set()
        gates.end.set()
        await served.runtime.wait(post.message_id)
        # Another start, at another session: the user has moved on; and back again, where the handoff still is the last result.
        async with front_of(served, "/research/pricing", memory) as front:
            await front.navigate("/")
            await told(front, client.Opened, by=client.By.USER)
            assert memory.kept is not None
            assert memory.kept.handled == (), "it was not handled, it is older"
        async with front_of(served, "/", memory) as front:
            assert await echoed(front) == "/ heard hello"
        # One that left before the server had noted where it went begins where it wanted to, as a navigation.
        memory.save(attrs.evolve(memory.kept, going=True))
        async with front_of(served, None, memory) as front:
            assert await echoed(front) == "/ heard hello"
            assert memory.kept.going is False


@pytest.mark.spec("HND-4")
async def test_of_two_clients_the_one_that_asked_is_moved_and_the_other_one_offered(
    tmp_path: Path, store_url: str
) -> None:
    async with (
        served_by(Gates(), tmp_path, store=store_url) as served,
        front_of(served) as one,
        front_of(served) as two,
    ):
        assert one.client != two.client
        await one.say("to /ops/deploy")
        assert (await told(one, client.Opened, by=client.By.HANDOFF)).place.path == "/ops/deploy"
        offered = await told(two, client.Offered)
        assert (offered.handoff.path, offered.why) == ("/ops/deploy", client.Why.OTHER)
        assert two.open.path == "/"
        # What no client of this kind has posted is for whoever has the session open.
        await served.post(two.open.session, "to /research/pricing")
        assert (await told(two, client.Opened, by=client.By.HANDOFF)).place.path == "/research/pricing"
        assert await echoed(one) == "/ops/deploy heard hello"


@pytest.mark.spec("HND-5")
async def test_a_target_that_wants_confirmation_is_offered_until_the_user_decides(
    tmp_path: Path, store_url: str
) -> None:
    memory = client.InMemory()
    async with served_by(Gates(), tmp_path, store=store_url) as served:
        assert (await served.client.put("/v1/policy", json={"prefix": "/ops", "confirm": True})).status_code == 200
        async with front_of(served, memory=memory) as front:
            await front.say("to /ops/deploy")
            offered = await told(front, client.Offered)
            assert (offered.handoff.confirm, offered.why) == (True, client.Why.CONFIRM)
            await told(front, client.Ended)
            assert await echoed(front) == "/ heard hello"
            await front.say("to /ops/deploy")
            again = await told(front, client.Offered)
            await told(front, client.Ended)
        async with front_of(served, None, memory) as front:
            assert (await told(front, client.Offered)).handoff.key == again.handoff.key, "a reload offers it again"
            front.decline(again.handoff)
        async with front_of(served, None, memory) as front:
            assert await echoed(front) == "/ heard hello"


@pytest.mark.spec("HND-4", "HND-5")
async def test_back_and_up_are_the_clients_own(tmp_path: Path) -> None:
    async with served_by(Gates(), tmp_path) as served, front_of(served) as front:
        assert await front.back() is None
        assert await front.up() is None
        await front.say("to /ops/deploy")
        await told(front, client.Opened, by=client.By.HANDOFF)
        await front.navigate("/research/pricing")
        gone = await served.runtime.open_session(path="/gone", agent="guide")
        await front.navigate(gone.id)
        await front.navigate("/ops/deploy")
        assert (await served.client.delete(f"/v1/sessions/{gone.id}")).status_code == 204
        places = [await front.back() for _ in range(4)]
        assert [place.path if place else None for place in places] == ["/research/pricing", "/ops/deploy", "/", None]
        await front.navigate("/research/pricing")
        above = await front.up()
        assert above is not None
        assert above.path == "/", "a level without a session is passed over"
        with pytest.raises(UnknownTarget):
            await front.navigate("/nowhere")
        assert front.open.path == "/"


@pytest.mark.spec("HND-2", "HND-4", "NS-3")
async def test_a_handoff_leads_to_the_session_whatever_has_its_path_by_then(tmp_path: Path, store_url: str) -> None:
    """ "The server resolves the path to a channel_id"; "the client never resolves paths"."""
    gates, memory = Gates(), client.InMemory()
    async with served_by(gates, tmp_path, store=store_url) as served:
        deploy = await served.runtime.desk.find(served.runtime.scope, "/ops/deploy")
        async with front_of(served, memory=memory) as front:
            post = await front.say("late /ops/deploy")
        gates.hand_over.set()
        gates.end.set()
        await served.runtime.wait(post.message_id)
        # While the client is away: renamed, and the operator gives the path to another session.
        await served.runtime.desk.rename(served.runtime.scope, deploy.id, path="/ops/release")
        assert await served.open("guide", path="/ops/deploy") != deploy.id
        async with front_of(served, None, memory) as front:
            opened = await told(front, client.Opened, by=client.By.HANDOFF)
            assert (opened.place.session, opened.place.path) == (deploy.id, "/ops/release")
            assert opened.handoff is not None
            assert opened.handoff.path == "/ops/deploy", "as it was then"
            assert await echoed(front) == "/ops/release heard hello"
        # The id opens nothing for whoever has no credential for the project, whoever gave it to them.
        stranger = await member_key(served, "bea", "elsewhere")
        async with client.open_front(served.url, stranger.token) as theirs:
            for refused in (theirs.accept(opened.handoff), theirs.navigate(deploy.id)):
                with pytest.raises(UnknownTarget):
                    await refused
            assert (theirs.open.path, theirs.open.session != deploy.id) == ("/", True)


@pytest.mark.spec("HND-4")
async def test_a_target_that_is_gone_when_it_is_to_be_opened_is_refused_and_moves_nobody(tmp_path: Path) -> None:
    gates, memory = Gates(), client.InMemory()
    async with served_by(gates, tmp_path) as served:
        deploy = await served.runtime.desk.find(served.runtime.scope, "/ops/deploy")
        async with front_of(served, memory=memory) as front:
            await front.say("late /ops/deploy")
        gates.hand_over.set()
        gates.end.set()
        await served.until(front.open.session, "turn.handoff")
        assert (await served.client.delete(f"/v1/sessions/{deploy.id}")).status_code == 204
        async with front_of(served, None, memory) as front:
            refused = await told(front, client.Refused)
            assert (refused.handoff.path, type(refused.error)) == ("/ops/deploy", UnknownTarget)
            assert await echoed(front) == "/ heard hello"


@pytest.mark.spec("HND-2", "HND-4", "EVT-3", "RT-17")
async def test_a_front_that_is_led_to_another_process_is_moved_once_and_not_pulled_back(tmp_path: Path) -> None:
    """ "Replays do not switch the user twice"; "a user who has moved on is not pulled back". Two runtimes on one PostgreSQL store."""
    gates, memory = Gates(), client.InMemory()
    async with shared_store(tmp_path, size=2, agents={"guide": gates.guide}) as shared:
        one, two = shared.all
        for where in ("/ops/deploy", "/research/pricing"):
            await one.open("guide", path=where)
        token = (await member_key(one, "ann")).token  # the operator's is each server's own
        async with relay(one) as path:
            async with client.open_front(path.url, token, memory=memory) as front:
                desk = front.open.session
                await front.say("late /ops/deploy")
                # Nothing of the handoff is heard of the process where the client was, but of the other one.
                path.deaf = True
                gates.hand_over.set()
                await one.until(desk, "turn.handoff")
                path.deaf = False
                path.lead_to(two)
                await told(front, client.Opened, by=client.By.START)
                assert (await told(front, client.Opened, by=client.By.HANDOFF)).place.path == "/ops/deploy"
                await front.back()
                await told(front, client.Opened, by=client.By.USER)
                gates.end.set()
                assert (await told(front, client.Ended)).show.whole == "Taking you there."
                assert front.open.session == desk
            # The handoff is the last result here; that the other process has noted where the user went is all that is known.
            path.lead_to(one)
            memory.save(client.Kept(front.client, desk))
            async with client.open_front(path.url, token, memory=memory) as front:
                await told(front, client.Opened, by=client.By.START)
                assert await echoed(front) == "/ heard hello"
        assert [kind for _, kind, _ in await one.log(desk)].count("turn.handoff") == 1
