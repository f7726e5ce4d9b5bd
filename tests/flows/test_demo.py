"""The demonstration team does what the outer contract promises, without a model. In one process, on a clock that jumps."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

import callboard
from callboard.storage.model.sessions import Handoff, Session
from callboard.supervisors.demo import COUNT_MOST, HELP, demonstration
from callboard.supervisors.team import open_places

TERMINAL = {"turn.completed", "turn.stopped", "turn.failed"}


class Demo:
    """A runtime with the team's three sessions open."""

    def __init__(self, runtime: callboard.Runtime, sessions: dict[str, Session]) -> None:
        self.runtime = runtime
        self.sessions = sessions

    async def say(self, path: str, text: str) -> list[callboard.Entry]:
        """Post, wait until the post is final, and give what the session has answered to it."""
        receipt = await self.runtime.send(path, text)
        await self.runtime.wait(receipt.message_id)
        return [entry for entry in await self.answers(path) if entry.in_reply_to == receipt.message_id]

    async def answers(self, path: str) -> list[callboard.Entry]:
        return [entry for entry in await self.runtime.read(path) if entry.role == "assistant"]

    async def until_turns(self, path: str, count: int) -> list[str]:
        """The terminal events of a session, once there are `count`."""
        seen: list[str] = []
        async with self.runtime.follow(self.sessions[path].id) as events:
            async for event in events:
                if event.kind in TERMINAL:
                    seen.append(event.kind)
                    if len(seen) == count:
                        return seen
        raise AssertionError("a feed never ends by itself")

    async def settled(self) -> dict[str, int]:
        """How many turns each session has ended, once nothing is due or running any more."""
        while True:
            # At the end of time everything that waits for a retry is due as well.
            due, held = await self.runtime.store.reads.counts(float("inf"))
            if not due and not held:
                break
            await trio.sleep(1)
        return {path: await self.turns(session) for path, session in self.sessions.items()}

    async def turns(self, session: Session) -> int:
        page = await self.runtime.store.reads.events(self.runtime.scope, session.id)
        return sum(event.kind in TERMINAL for event in page.events)


@pytest.fixture
async def demo(autojump_clock: MockClock) -> AsyncIterator[Demo]:
    team = demonstration()
    async with callboard.open_runtime("sqlite:///:memory:", agents=team.agents, executor="inline") as runtime:
        await open_places(runtime, team)
        yield Demo(runtime, {session.path: session for session in await runtime.list_sessions() if session.path})


async def test_the_team_has_the_sessions_of_the_contract(autojump_clock: MockClock, demo: Demo) -> None:
    assert {path: session.agent for path, session in demo.sessions.items()} == {
        "/": "front-desk",
        "/ops/deploy": "deploy",
        "/research/pricing": "pricing",
    }


@pytest.mark.parametrize("path", ["/", "/ops/deploy", "/research/pricing"])
@pytest.mark.parametrize(
    "text", ["hello", "two words", "  kept  as it is ", "line\nbreak", "echo echo", "fail", "ünï ✓"]
)
async def test_echo_answers_exactly_the_text(autojump_clock: MockClock, demo: Demo, path: str, text: str) -> None:
    assert [entry.content for entry in await demo.say(path, f"echo {text}")] == [text]


@pytest.mark.parametrize(
    "text", ["hello", "echo", "echo   ", "count", "count x", "count -1", "ask /", "child", "echoes", "Fail", "sleep"]
)
async def test_anything_else_gets_one_line_of_help(autojump_clock: MockClock, demo: Demo, text: str) -> None:
    assert [entry.content for entry in await demo.say("/", text)] == [HELP]
    assert "\n" not in HELP


async def test_count_streams_one_number_each_100_ms(autojump_clock: MockClock, demo: Demo) -> None:
    began = trio.current_time()
    assert [entry.content for entry in await demo.say("/", "count 5")] == ["1 2 3 4 5"]
    page = await demo.runtime.store.reads.events(demo.runtime.scope, demo.sessions["/"].id)
    tokens = [event for event in page.events if event.kind == "turn.token"]
    assert [event.data["text"] for event in tokens] == ["1", " 2", " 3", " 4", " 5"]
    assert 0.4 <= trio.current_time() - began < 1
    gaps = [
        later.at - earlier.at for earlier, later in itertools.pairwise(tokens[:-1])
    ]  # the last one goes with the commit
    assert gaps == pytest.approx([0.1] * 3, abs=0.02)


@pytest.mark.parametrize("number", ["0", str(COUNT_MOST + 1), "9" * 50])
async def test_count_is_bounded(autojump_clock: MockClock, demo: Demo, number: str) -> None:
    (answer,) = await demo.say("/", f"count {number}")
    assert str(COUNT_MOST) in answer.content


async def test_a_stopped_count_keeps_what_it_had_streamed(autojump_clock: MockClock, demo: Demo) -> None:
    receipt = await demo.runtime.send("/", "count 1000")
    async with demo.runtime.follow(demo.sessions["/"].id) as events:
        async for event in events:
            if event.kind == "turn.token" and event.data["text"] == " 7":
                break
    stopped_at = trio.current_time()
    await demo.runtime.stop("/")
    view = await demo.runtime.wait(receipt.message_id)
    assert view.outcome == "stopped"
    assert trio.current_time() - stopped_at < 1, "it should end by itself, before its grace is over"
    (answer,) = await demo.answers("/")
    assert answer.content == " ".join(map(str, range(1, 8)))


async def test_sleep_ends_at_its_time_and_when_asked_to(autojump_clock: MockClock, demo: Demo) -> None:
    began = trio.current_time()
    await demo.say("/", "sleep 30")
    assert 30 <= trio.current_time() - began < 31
    receipt = await demo.runtime.send("/", "sleep 3600")
    async with demo.runtime.follow(demo.sessions["/"].id) as events:
        async for event in events:
            if event.kind == "attempt.claimed" and event.data["message_id"] == receipt.message_id:
                break
    asked_at = trio.current_time()
    await demo.runtime.stop("/")
    assert (await demo.runtime.wait(receipt.message_id)).outcome == "stopped"
    assert trio.current_time() - asked_at < 1


async def test_hang_ignores_a_stop_request_until_it_is_cancelled(autojump_clock: MockClock, demo: Demo) -> None:
    receipt = await demo.runtime.send("/", "hang 3600")
    async with demo.runtime.follow(demo.sessions["/"].id) as events:
        async for event in events:
            if event.kind == "attempt.claimed":
                break
    asked_at = trio.current_time()
    await demo.runtime.stop("/")
    assert (await demo.runtime.wait(receipt.message_id)).outcome == "stopped"
    grace = demo.runtime.desk.tuning.stop_grace_seconds
    assert grace <= trio.current_time() - asked_at < grace + 2


async def test_fail_uses_all_attempts(autojump_clock: MockClock, demo: Demo) -> None:
    receipt = await demo.runtime.send("/", "fail")
    view = await demo.runtime.wait(receipt.message_id)
    assert (view.status, view.reason, view.attempts) == ("failed", "retries_used", 5)
    assert view.last_error == "RuntimeError: this agent was told to fail"


async def test_ask_reports_the_answer_and_nobody_answers_an_answer(autojump_clock: MockClock, demo: Demo) -> None:
    await demo.say("/", "ask /ops/deploy echo is it up?")
    assert await demo.until_turns("/", 2) == ["turn.completed"] * 2
    first, second = await demo.answers("/")
    assert "/ops/deploy" in first.content
    assert second.content == "/ops/deploy answered: is it up?"
    assert await demo.settled() == {"/": 2, "/ops/deploy": 1, "/research/pricing": 0}


async def test_an_asked_count_is_answered_with_all_of_its_text(autojump_clock: MockClock, demo: Demo) -> None:
    await demo.say("/", "ask /ops/deploy count 4")
    await demo.until_turns("/", 2)
    assert (await demo.answers("/"))[-1].content == "/ops/deploy answered: 1 2 3 4"


async def test_an_answer_that_looks_like_a_command_is_not_carried_out(autojump_clock: MockClock, demo: Demo) -> None:
    await demo.say("/", "ask /ops/deploy echo ask /research/pricing echo too far")
    await demo.until_turns("/", 2)
    assert (await demo.answers("/"))[-1].content == "/ops/deploy answered: ask /research/pricing echo too far"
    assert await demo.settled() == {"/": 2, "/ops/deploy": 1, "/research/pricing": 0}


async def test_asking_through_a_third_session_ends(autojump_clock: MockClock, demo: Demo) -> None:
    await demo.say("/", "ask /ops/deploy ask /research/pricing echo deep")
    # Two at /: the command, and that the deploy desk has asked on. Two there: the same. One where it is echoed.
    assert await demo.settled() == {"/": 2, "/ops/deploy": 2, "/research/pricing": 1}
    assert (await demo.answers("/ops/deploy"))[-1].content == "/research/pricing answered: deep"


async def test_asking_back_ends(autojump_clock: MockClock, demo: Demo) -> None:
    await demo.say("/", "ask /ops/deploy ask / echo ping")
    turns = await demo.settled()
    assert sum(turns.values()) <= 5, turns


@pytest.mark.parametrize("target", ["/nowhere", "/", "/Bad", "ses_unknown", "peer:0123456789ab"])
async def test_a_question_that_is_refused_says_why(autojump_clock: MockClock, demo: Demo, target: str) -> None:
    (answer,) = await demo.say("/", f"ask {target} echo x")
    assert answer.content.startswith(f"I could not ask {target}: ")


async def test_child_makes_exactly_two_completed_turns_at_the_parent(autojump_clock: MockClock, demo: Demo) -> None:
    await demo.say("/research/pricing", "child a small thing")
    assert await demo.until_turns("/research/pricing", 2) == ["turn.completed"] * 2
    assert (await demo.answers("/research/pricing"))[-1].content == "The subagent answered: a small thing"
    assert await demo.settled() == {"/": 0, "/ops/deploy": 0, "/research/pricing": 2}
    (child,) = [session for session in await demo.runtime.list_sessions() if session.parent is not None]
    assert child.child_state == "completed"
    assert [entry.content for entry in await demo.runtime.read(child.id)] == ["echo a small thing", "a small thing"]


async def test_an_answer_that_is_too_long_for_a_message_is_cut(autojump_clock: MockClock, demo: Demo) -> None:
    await demo.say("/", "ask /ops/deploy count 4300")
    await demo.until_turns("/", 2)
    answer = (await demo.answers("/"))[-1].content
    assert answer.endswith("…")
    assert len(answer) == len("/ops/deploy answered: ") + 20_000


async def test_a_notice_that_comes_along_changes_nothing(autojump_clock: MockClock, demo: Demo) -> None:
    # The deploy desk fails; the asker's non-delivery notice waits for its next turn and is not answered.
    await demo.say("/", "ask /ops/deploy fail")
    await demo.settled()
    assert [entry.role for entry in await demo.runtime.read("/")] == ["user", "assistant", "notice"]
    assert [entry.content for entry in await demo.say("/", "echo still here")] == ["still here"]
    assert await demo.settled() == {"/": 2, "/ops/deploy": 1, "/research/pricing": 0}


@pytest.mark.spec("HND-1", "HND-2")
@pytest.mark.parametrize("wanted", ["deploy", "/ops/deploy"])
async def test_taking_somebody_somewhere_is_a_handoff(autojump_clock: MockClock, demo: Demo, wanted: str) -> None:
    (answer,) = await demo.say("/", f"take me to {wanted}")
    assert answer.content == "Taking you to deploy."
    page = await demo.runtime.store.reads.events(demo.runtime.scope, demo.sessions["/"].id)
    ((number, handed),) = [(event.id, event.data) for event in page.events if event.kind == "turn.handoff"]
    assert answer.handoff == Handoff("/ops/deploy", demo.sessions["/ops/deploy"].id, event_id=number)
    expected = {"path": "/ops/deploy", "channel_id": demo.sessions["/ops/deploy"].id, "from_path": "/"}
    assert {name: handed[name] for name in expected} == expected
    assert await demo.answers("/ops/deploy") == []
    (back,) = await demo.say("/ops/deploy", "take me to /")
    assert back.content == "Taking you to /."
    assert back.handoff is not None
    assert (back.handoff.path, back.handoff.channel_id) == ("/", demo.sessions["/"].id)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ("nowhere", "no session is called that"),
        ("/ops", "no session has this path"),
        ("/Ops", "segment"),
        ("/", "in this session already"),
        ("pricing", "it may be /pricing, /research/pricing"),
    ],
)
async def test_where_nobody_can_be_taken_it_says_why(
    autojump_clock: MockClock, demo: Demo, wanted: str, why: str
) -> None:
    await demo.runtime.open_session(agent="pricing", path="/pricing")
    (answer,) = await demo.say("/", f"take me to {wanted}")
    assert answer.content.startswith(f"I can't take you to {wanted}: ")
    assert why in answer.content
    assert answer.handoff is None
