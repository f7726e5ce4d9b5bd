"""The cache report: what the next call would send, and what of it changed, over HTTP and by the command; looking changes nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest

from callboard import ChatAgent, Turn, tool
from callboard.actors.models.model import ModelUnavailable
from callboard.storage.model.addresses import Sender
from callboard.storage.model.messages import Kind
from callboard.storage.ops.inbox import enqueue
from callboard.tests.flows.chat_kit import Answer, WrittenModel, asks, text
from callboard.tests.flows.cli_kit import Here, serving
from callboard.tests.flows.edge_kit import Served, serving_runtime
from callboard.tests.flows.prompt_kit import Pause

pytestmark = [pytest.mark.spec("CTX-1"), pytest.mark.usefixtures("monday")]
TEAM = """
from callboard import ChatAgent, Team
from callboard.actors.models.model import Completion
from callboard.tests.flows.prompt_day import stand_still

stand_still()

class Echo:
    name = "echo-1"

    async def complete(self, prompt, emit):
        await emit("I see.")
        return Completion("I see.")

async def plain(turn):
    return "ok"

print("a team may print")
team = Team(agents={"desk": ChatAgent(Echo(), "You are the desk."), "plain": plain}, sessions={"/plain": "plain"})
"""


@attrs.define
class Hall:
    """A served desk whose model a test writes; its tool waits while `held` says so."""

    served: Served
    model: WrittenModel
    looks: list[int]
    desk: str = ""

    async def shown(self, session: str | None = None) -> dict[str, Any]:
        answer = await self.served.client.get(f"/v1/sessions/{session or self.desk}/prompt")
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def say(self, content: str, *answers: Answer) -> None:
        self.model.answers += answers
        await self.served.say(self.desk, content)

    def sent(self) -> str:
        """The hash of what the model was asked with last."""
        return self.model.prompts[-1].content_hash


def told(shown: dict[str, Any]) -> list[str]:
    return [json.loads(part["text"])["content"] for part in shown["parts"] if part["name"].startswith("tail")]


@pytest.fixture
async def hall(tmp_path: Path) -> AsyncIterator[Hall]:
    model, looks = WrittenModel(), list[int]()

    @tool("pure")
    async def look() -> str:
        """Looks."""
        looks.append(1)
        return "looked"

    async def plain(turn: Turn) -> str:
        return "ok"

    agents = {"desk": ChatAgent(model, "You are the desk.", tools=[look]), "plain": plain}
    async with serving_runtime(tmp_path, agents=agents) as served:
        opened = Hall(served, model, looks)
        opened.desk = (await served.runtime.open_session(agent="desk", path="/")).id
        yield opened


async def test_without_a_message_it_is_what_the_next_one_would_be_added_to(hall: Hall) -> None:
    shown = await hall.shown()
    assert (shown["turn"], shown["agent"], shown["session"], shown["diff"]) == ("none", "desk", hall.desk, None)
    assert [part["name"] for part in shown["parts"]] == ["system", "tools", "block date"]
    assert shown["bytes"] == sum(part["bytes"] for part in shown["parts"])
    assert all(part["bytes"] == len(part["text"].encode()) for part in shown["parts"])
    await hall.say("hello", text("Hello Ann."))
    assert (await hall.shown())["diff"]["changed"] == [
        {"part": "tail 2", "at": 0, "removed": "", "added": '{"role":"assistant","content":"Hello Ann."}'}
    ]
    assert told(await hall.shown()) == ["hello", "Hello Ann."]


@pytest.mark.spec("CTX-4", "CTX-5")
async def test_the_diff_says_which_bytes_changed_and_how_much_stands_before_them(hall: Hall) -> None:
    await hall.say("hello", text("Hello Ann."))
    await hall.served.open("plain", path="/ops")
    before = await hall.shown()
    assert [change["part"] for change in before["diff"]["changed"]] == ["block directory", "tail 2"]
    await hall.say("again", text("Yes?"))
    await hall.served.open("plain", path="/ops/deploy")
    shown = await hall.shown()
    parts = {part["name"]: part for part in shown["parts"]}
    first, *_ = shown["diff"]["changed"]
    assert first["part"] == "block directory"
    assert first["added"] == "\\n- /ops/deploy (plain)"
    stable = sum(parts[name]["bytes"] for name in ("system", "tools", "block date"))
    assert shown["diff"]["common"] == stable + first["at"]


@pytest.mark.spec("CTX-6")
async def test_of_a_turn_that_runs_it_is_what_its_next_call_sends(hall: Hall) -> None:
    first, second = Pause(asks(("look", {}))), Pause(text("Seen."))
    hall.model.answers += [first, second]
    await hall.served.post(hall.desk, "look please")
    await first.begun.wait()
    shown = await hall.shown()
    assert (shown["turn"], shown["request_hash"]) == ("running", hall.sent())
    assert shown["diff"]["changed"] == []
    await hall.served.post(hall.desk, "and be quick")
    # It is told of the post that waits, which the call under way was not.
    assert [c["part"] for c in (await hall.shown())["diff"]["changed"]] == ["block queued"]
    first.go_on.set()
    await second.begun.wait()
    shown = await hall.shown()
    assert shown["request_hash"] == hall.sent()
    assert told(shown) == ["look please", "", "looked", "and be quick"]
    second.go_on.set()
    await hall.served.until(hall.desk, "turn.completed")
    assert hall.looks == [1]


async def test_of_a_turn_that_is_tried_again_it_is_what_the_next_attempt_sends(hall: Hall) -> None:
    pause = Pause(text("Seen."))
    hall.model.answers += [asks(("look", {})), ModelUnavailable("gone"), pause]
    receipt = await hall.served.post(hall.desk, "look please")
    await hall.served.until(hall.desk, "attempt.relinquished")
    shown = await hall.shown()  # as a rule before the next attempt begins; it makes no difference
    assert shown["request_hash"] == hall.sent()
    assert told(shown) == ["look please", "", "looked"]
    pause.go_on.set()
    await hall.served.runtime.wait(receipt["message_id"])
    assert shown["request_hash"] == hall.sent()
    assert hall.looks == [1]


async def test_what_comes_along_and_whom_it_answers_are_as_the_turn_has_them(hall: Hall) -> None:
    pause = Pause(text("First."))
    second = Pause(text("Second."))
    hall.model.answers += [pause, second]
    await hall.served.post(hall.desk, "first")
    await pause.begun.wait()
    runtime = hall.served.runtime
    other = Sender("ses_other", "session", "/other")
    asked: list[tuple[Kind, str, str | None]] = [
        (Kind.NOTICE, "mail is late", None),
        (Kind.AGENT_MESSAGE, "my answer", "m-9"),
        (Kind.NOTICE, "later", None),
    ]
    for kind, content, reply_to in asked:
        await runtime.store.apply(
            enqueue(runtime.scope, f"session:{hall.desk}", other, content, kind=kind, reply_to=reply_to)
        )
    assert told(await hall.shown()) == ["first"]
    pause.go_on.set()
    await second.begun.wait()
    shown = await hall.shown()
    assert shown["request_hash"] == hall.sent()
    assert told(shown) == [
        *("first", "First.", "[system notice]\nmail is late"),
        "[message from the session /other, ses_other, in reply to m-9]\nmy answer",
    ]
    second.go_on.set()


async def test_looking_writes_nothing_asks_nobody_and_runs_nothing(hall: Hall) -> None:
    pause = Pause(asks(("look", {})))
    hall.model.answers += [pause, text("Done.")]
    await hall.served.post(hall.desk, "go")
    await pause.begun.wait()
    before = await hall.served.log(hall.desk)
    for _ in range(5):
        await hall.shown()
    assert await hall.served.log(hall.desk) == before
    assert len(hall.model.prompts) == 1
    assert hall.looks == []
    pause.go_on.set()
    await hall.served.until(hall.desk, "turn.completed")


async def test_what_can_t_be_shown_says_why(hall: Hall) -> None:
    plain = await hall.served.open("plain")
    error = await hall.served.refused("GET", f"/v1/sessions/{plain}/prompt", 409, "conflict")
    assert "plain asks no model" in error["message"]
    await hall.served.refused("GET", "/v1/sessions/ses_none/prompt", 404, "unknown_target")
    await hall.served.refused("GET", f"/v1/sessions/{hall.desk}/prompt?diff=1", 400, "invalid_field")


@pytest.mark.spec("CTX-3", "CTX-4", "CTX-5", "RT-17")
async def test_a_hundred_changes_of_the_directory_leave_system_and_tools_byte_identical(
    tmp_path: Path, store_url: str
) -> None:
    """ "The directory changes whenever a session is created or renamed. Keeping it out of the prefix preserves the cached system prompt and tools".

    A real server, which has sent the prompt that each is compared with; on PostgreSQL the changes are made at another one, which shows the
    same bytes in the end. Between two reports the directory always differs, so nothing is equal by standing still.
    """
    (tmp_path / "desks.py").write_text(TEAM)
    (tmp_path / "callboard.toml").write_text('team = "desks:team"\n')
    async with AsyncExitStack() as stack:
        given, two = ("--store", store_url), store_url.startswith("postgres")
        server = await stack.enter_async_context(serving(tmp_path, *given))
        await server.post("/", "hello")
        await server.until("/", lambda kind, _: kind == "turn.completed")
        changing = server
        if two:
            other = tmp_path / "other"
            shutil.copytree(tmp_path, other, ignore=shutil.ignore_patterns("other"))
            changing = await stack.enter_async_context(serving(other, *given))
        session = await server.session("/")
        http, changer = [await stack.enter_async_context(each.http) for each in (server, changing)]
        await changer.post("/v1/sessions", json={"agent": "desk", "path": "/aside"})  # no later one is as it was sent
        reports = [(await http.get(f"/v1/sessions/{session}/prompt")).json()]
        for number in range(20):
            async for answer in changes(changer, number):
                assert answer.is_success, answer.text
                reports.append((await http.get(f"/v1/sessions/{session}/prompt")).json())
        shown = (await changer.get(f"/v1/sessions/{session}/prompt")).json()
    assert {**shown, "diff": None} == {**reports[-1], "diff": None}
    assert (shown["diff"] is None) == two, "what was sent is in the memory of the one that sent it"
    parts = [{part["name"]: part for part in report["parts"]} for report in reports]
    assert len(reports) == 101
    assert len({(each["system"]["text"], each["tools"]["text"], each["block date"]["text"]) for each in parts}) == 1
    stable = sum(parts[0][name]["bytes"] for name in ("system", "tools", "block date"))
    directories = [each["block directory"]["text"] for each in parts]
    assert all(one != other for one, other in pairwise(directories))
    for report in reports[1:]:
        assert report["diff"]["changed"][0]["part"] == "block directory"
        assert report["diff"]["common"] == stable + report["diff"]["changed"][0]["at"]


async def changes(http: httpx.AsyncClient, number: int) -> AsyncIterator[httpx.Response]:
    """Five: a session is opened, renamed, closed to handoffs by a rule, and free again without it, then deleted."""
    path = f"/ops/n{number:02}"
    made = await http.post("/v1/sessions", json={"agent": ("plain", "desk")[number % 2], "path": path})
    yield made
    yield await http.patch(f"/v1/sessions/{made.json()['id']}", json={"path": f"{path}-renamed"})
    yield await http.put("/v1/policy", json={"prefix": f"{path}-renamed", "handoff": False})
    yield await http.put("/v1/policy", json={"prefix": f"{path}-renamed"})
    yield await http.delete(f"/v1/sessions/{made.json()['id']}")


# -- the command -------------------------------------------------------------------------------------------------------------


async def test_the_command_shows_it_with_a_server_and_without(tmp_path: Path, here: Here) -> None:
    (tmp_path / "desks.py").write_text(TEAM)
    (tmp_path / "callboard.toml").write_text('team = "desks:team"\n')
    async with serving(tmp_path) as server:
        nothing = await here("prompt", "show", "/", "--diff", folder=tmp_path)
        assert (nothing.code, nothing.out) == (1, "")
        assert "has asked no model for this session yet" in nothing.err
        await server.post("/", "hello")
        await server.until("/", lambda kind, _: kind == "turn.completed")
        online = await here("prompt", "show", "/", "--json", folder=tmp_path)
        said = await here("prompt", "show", "/", folder=tmp_path)
        assert said.out.splitlines()[0].startswith("desk, without a message, as none waits: ")
        assert "--- block directory (" in said.out
        assert "--- tail 2 (" in said.out
        compared = await here("prompt", "show", "/", "--diff", folder=tmp_path)
        assert compared.code == 0
        head, *rest = compared.out.splitlines()
        assert "common prefix " in head
        assert head.endswith("%)")
        assert rest == ["--- tail 2, from byte 0", '+ {"role":"assistant","content":"I see."}']
        refused = await here("prompt", "show", "/plain", folder=tmp_path)
        assert (refused.code, refused.out) == (1, "")
        assert "asks no model" in refused.err
    offline = await here("prompt", "show", "/", "--json", folder=tmp_path)
    assert offline.code == 0, offline.err
    assert {**offline.json, "diff": None} == {**online.json, "diff": None}
    assert offline.json["diff"] is None
    assert (await here("sessions", "send", "/", "later", folder=tmp_path)).code == 0
    waiting = await here("prompt", "show", "/", "--json", folder=tmp_path)
    assert (waiting.json["turn"], told(waiting.json)) == ("next", ["hello", "I see.", "later"])
    assert "block queued" not in {part["name"] for part in waiting.json["parts"]}, (
        "its own message does not wait for it"
    )
    gone = await here("prompt", "show", "/", "--diff", folder=tmp_path)
    assert gone.code == 1
    assert "no server runs here" in gone.err
