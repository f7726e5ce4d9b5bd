"""The client of chat completions against a service of other people's, which also judges how it is used (CTX-7)."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
import trio

from callboard import ChatModel, ModelLimits
from callboard.actors.models.model import (
    BrokenAnswer,
    Completion,
    ModelRefused,
    ModelUnavailable,
    Prompt,
    ToolSpec,
    Usage,
)
from callboard.tests.flows.model_fake import chunked, delta, faking, sse
from callboard.tests.flows.model_kit import ModelServer, breaks, calls, fails, says

pytestmark = pytest.mark.spec("CTX-7")

QUICK = ModelLimits(pause_seconds=0.06)
WEATHER = ToolSpec("weather", "Tells the weather.", {"type": "object", "properties": {"city": {"type": "string"}}})
PROMPT = Prompt(({"role": "system", "content": "You are brief."}, {"role": "user", "content": "hellö"}), (WEATHER,))
KEY = "sk-very-secret-0123456789"


@attrs.define
class Heard:
    """What was handed out on the way."""

    pieces: list[str] = attrs.field(factory=list[str])

    async def __call__(self, text: str) -> None:
        await trio.lowlevel.checkpoint()
        self.pieces.append(text)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


def model(url: str, **fields: Any) -> ChatModel:
    return ChatModel(url, "small-1", **{"key": KEY, "limits": QUICK, **fields})


async def answer(model: ChatModel, heard: Heard | None = None) -> Completion:
    with trio.fail_after(30):
        return await model.complete(PROMPT, heard or Heard())


async def test_an_answer_is_streamed_and_its_usage_told(model_server: ModelServer) -> None:
    await model_server.plan(says("Good day to you."))
    heard = Heard()
    found = await answer(model(model_server.url, options={"temperature": 0.5}), heard)
    assert (found.text, found.calls, found.finish, found.model) == ("Good day to you.", (), "stop", "small-1")
    assert heard.pieces == ["Good ", "day ", "to ", "you."]
    assert found.usage is not None
    assert 0 < found.usage.prompt < found.usage.total == found.usage.prompt + found.usage.completion
    (request,) = await model_server.requests()
    assert request["body"] == {
        "model": "small-1",
        "temperature": 0.5,
        "stream": True,
        "stream_options": {"include_usage": True},
        **PROMPT.body(),
    }
    assert await model_server.findings() == []


async def test_an_answer_may_come_in_one_piece(model_server: ModelServer) -> None:
    await model_server.plan(says("Good day."), calls(("weather", {"city": "Bern"})))
    quiet, heard = model(model_server.url, stream=False), Heard()
    found = await answer(quiet, heard)
    assert (found.text, heard.pieces, found.finish) == ("Good day.", ["Good day."], "stop")
    assert isinstance(found.usage, Usage)
    (call,) = (await answer(quiet)).calls
    assert (call.name, call.arguments) == ("weather", '{"city": "Bern"}')
    for request in await model_server.requests():
        assert "stream" not in request["body"]
        assert "stream_options" not in request["body"]


async def test_tool_calls_are_put_together_from_their_pieces(model_server: ModelServer) -> None:
    long = {"city": "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch", "note": 'ü"\\'}
    await model_server.plan(calls(("weather", long), ("weather", {}), ("nothing", {"x": [1]}), text="Let me look."))
    heard = Heard()
    found = await answer(model(model_server.url), heard)
    assert (found.text, found.finish) == ("Let me look.", "tool_calls")
    assert heard.text == found.text
    assert [call.name for call in found.calls] == ["weather", "weather", "nothing"]
    assert [json.loads(call.arguments) for call in found.calls] == [long, {}, {"x": [1]}]
    assert len({call.id for call in found.calls}) == 3


async def test_refusals_of_the_moment_are_tried_again_as_the_service_asks(model_server: ModelServer) -> None:
    await model_server.plan(fails(429, retry_after=0.4), fails(503), fails(500), says("At last."))
    heard = Heard()
    assert (await answer(model(model_server.url), heard)).text == "At last."
    assert heard.text == "At last."
    requests = await model_server.requests()
    assert [request["status"] for request in requests] == [429, 503, 500, 200]
    assert requests[1]["started_at"] - requests[0]["ended_at"] >= 0.4
    assert await model_server.findings() == []


@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_after_four_tries_it_is_unavailable(model_server: ModelServer, status: int) -> None:
    await model_server.plan(fails(status, times=None, retry_after=0.05, message="try later"))
    with pytest.raises(ModelUnavailable, match=rf"not available \({status}: try later\)") as caught:
        await answer(model(model_server.url))
    assert (caught.value.code, caught.value.status) == ("model_unavailable", 502)
    assert len(await model_server.requests()) == 4
    assert await model_server.findings() == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_what_the_service_refuses_for_good_is_not_tried_again(model_server: ModelServer, status: int) -> None:
    await model_server.plan(fails(status, message="no: " + "x" * 5_000 + "\n"))
    with pytest.raises(ModelRefused, match=rf"refuses the request \({status}: no: x+…\)") as caught:
        await answer(model(model_server.url))
    assert len(caught.value.message) < 400
    assert len(await model_server.requests()) == 1
    assert await model_server.findings() == []


@pytest.mark.parametrize("kind", ["disconnect", "truncate", "malformed"])
async def test_a_stream_that_breaks_before_any_text_is_tried_again(model_server: ModelServer, kind: str) -> None:
    await model_server.plan(breaks(kind, 1), says("First."), says("Second."))
    heard = Heard()
    assert (await answer(model(model_server.url), heard)).text == "Second."
    assert heard.text == "Second."
    assert len(await model_server.requests()) == 2
    # Whether a bad piece was noticed the service can't see: all of that stream may be sent before its client hangs up.
    assert set(await model_server.findings()) <= {"malformed_chunk_ignored"}


@pytest.mark.parametrize("kind", ["disconnect", "truncate", "malformed"])
async def test_a_stream_that_breaks_after_some_text_is_an_error_and_no_shorter_answer(
    model_server: ModelServer, kind: str
) -> None:
    await model_server.plan(breaks(kind, 3), says("One two three four."))
    heard = Heard()
    with pytest.raises(BrokenAnswer):
        await answer(model(model_server.url), heard)
    assert heard.text == "One two "
    assert len(await model_server.requests()) == 1


@pytest.mark.parametrize("kind", ["disconnect", "truncate"])
async def test_a_tool_call_that_breaks_off_is_not_half_a_call(model_server: ModelServer, kind: str) -> None:
    await model_server.plan(breaks(kind, 4), calls(("weather", {"city": "Bern, or Basel"})), says("Well."))
    found = await answer(model(model_server.url))
    assert (found.text, found.calls) == ("Well.", ())


async def test_silence_is_not_waited_for_without_end(model_server: ModelServer) -> None:
    await model_server.plan(breaks("stall", 1, stall_seconds=30), says("First."), says("Second."))
    limits = attrs.evolve(QUICK, silence_seconds=0.3)
    assert (await answer(model(model_server.url, limits=limits))).text == "Second."
    assert "no_read_timeout" not in await model_server.findings()


async def test_a_service_that_is_not_there_is_tried_four_times(caplog: pytest.LogCaptureFixture) -> None:
    with trio.socket.socket() as taken:
        await taken.bind(("127.0.0.1", 0))  # and does not listen
        with pytest.raises(ModelUnavailable, match="can't be reached"):
            await answer(model(f"http://127.0.0.1:{taken.getsockname()[1]}/v1"))
    assert [record.message[:20] for record in caplog.records if record.name == "callboard.model"] == [
        f"small-1: try {n} faile" for n in (1, 2, 3)
    ]


async def test_cancelling_ends_the_request_at_once() -> None:
    async with faking() as fake, trio.open_nursery() as nursery:
        fake.plan((chunked(sse(delta("Once ")), end=False), fake.until_hung_up))
        begun = trio.Event()

        async def emit(text: str) -> None:
            begun.set()

        nursery.start_soon(model(fake.url).complete, PROMPT, emit)
        with trio.fail_after(10):
            await begun.wait()
            nursery.cancel_scope.cancel()
    with trio.fail_after(10):
        await fake.hung_up.wait()
