"""The client of chat completions against services that misbehave: what still is an answer, what is none, and what never leaves the client."""

from __future__ import annotations

import gzip
import json
import logging
import ssl
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import attrs
import pytest
import trio
import trustme
from outcome import acapture

from callboard import ChatModel, InvalidField, ModelLimits
from callboard.actors.models.model import BrokenAnswer, Completion, ModelRefused, ModelUnavailable, Prompt, Usage
from callboard.tests.flows.model_fake import FakeModel, Part, chunked, delta, faking, head, sse, whole

pytestmark = pytest.mark.spec("CTX-7")

KEY = "sk-very-secret-0123456789"
ONCE = ModelLimits(tries=1)
PROMPT = Prompt(({"role": "user", "content": "hello"},))
HELLO = sse(delta("Hel"), delta("lo"))
GOOD = chunked(sse(delta("Good"), delta(finish="stop"), "[DONE]"))


async def ignore(text: str) -> None:
    """Nobody listens."""


async def answer(fake: FakeModel, limits: ModelLimits = ONCE, **fields: Any) -> Completion:
    with trio.fail_after(30):
        return await ChatModel(fake.url, "small-1", KEY, limits=limits, **fields).complete(PROMPT, ignore)


async def answered(*parts: Part, limits: ModelLimits = ONCE) -> Completion:
    """What one request that is answered with `parts` gives."""
    async with faking(parts) as fake:
        found = await acapture(answer, fake, limits)
    return found.unwrap()


@pytest.mark.parametrize(
    "parts",
    [
        (head(), HELLO, sse(delta(finish="stop"), "[DONE]")),
        (head(), HELLO, sse("[DONE]")),
        (head(), HELLO, sse(delta(finish="stop"))),
        (head(), HELLO, b"data: " + json.dumps(delta("", "stop")).encode() + b"\r\r"),
        (head(kind="text/plain"), b": ping\n\n", HELLO, b"\xef\xbb\xbf: ping\n\n", sse(delta(finish="stop"), "[DONE]")),
        (chunked(HELLO, sse(delta(finish="stop")), end=False),),
        (whole("Hello"),),
        (head("201 Created"), HELLO, sse(delta(finish="length"), "[DONE]"), b"data: garbage after the end\n\n"),
    ],
    ids=["usual", "no reason", "no mark", "other line ends", "pings", "cut after its end", "one piece", "more after"],
)  # fmt: skip
async def test_what_is_an_answer(parts: tuple[Part, ...]) -> None:
    assert (await answered(*parts)).text == "Hello"


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (b"HTTP/1.1 200",),
        (b"\x16\x03\x01 this is no HTTP\r\n\r\n",),
        (head(),),
        (head(), HELLO),
        (chunked(HELLO),),
        (chunked(HELLO, end=False),),
        (head(), HELLO, b"data: " + json.dumps(delta("", "stop")).encode()),
        (head(), HELLO, b"data: {\n\n"),
        (head(), HELLO, sse("[1]")),
        (head(), HELLO, sse('{"error": {"message": "overloaded"}}', "[DONE]")),
        (head(), b"data: " + b"[" * 200_000 + b"\n\n"),
        (head(), b"data: " + b"x" * (2 * 1024 * 1024)),
        (head(kind="application/json"), b'{"choices": ['),
        (head(kind="application/json"), b'{"error": {"message": "overloaded"}}'),
    ],
    ids=[
        "nothing", "half a head", "no HTTP", "no body", "ends too soon", "no end said", "cut", "half an event", "no JSON", "no object",
        "error in the stream", "too deep", "endless line", "half a document", "error as answer",
    ],
)  # fmt: skip
async def test_what_is_none(parts: tuple[Part, ...]) -> None:
    with pytest.raises(ModelUnavailable):
        await answered(*parts)


async def test_an_answer_that_never_stops_is_cut_off() -> None:
    limits = attrs.evolve(ONCE, answer_bytes=10_000)
    async with faking() as fake:

        async def flood(stream: trio.abc.Stream) -> None:
            while True:
                await stream.send_all(sse(delta("on and on ")))

        fake.plan((head(), flood))
        with pytest.raises(BrokenAnswer, match="more than 10000 bytes"):
            await answer(fake, limits)
        with trio.fail_after(10):
            await fake.hung_up.wait()
    with pytest.raises(BrokenAnswer, match="more than 10000 bytes"):
        await answered(whole("x" * 10_000), limits=limits)


async def test_what_follows_the_end_is_not_waited_for() -> None:
    async with faking() as fake:
        fake.plan((head(), HELLO, sse(delta(finish="stop")), fake.until_hung_up))
        assert (await answer(fake, attrs.evolve(ONCE, rest_seconds=0.05))).text == "Hello"
        with trio.fail_after(10):
            await fake.hung_up.wait()


async def test_an_answer_has_a_limit_in_time_however_often_it_shows_life() -> None:
    async with faking() as fake:

        async def ping(stream: trio.abc.Stream) -> None:
            while True:
                await stream.send_all(b": still here\n\n")
                await trio.sleep(0.01)

        fake.plan((head(), ping))
        with pytest.raises(ModelUnavailable, match=r"longer than 0\.2 s"):
            await answer(fake, attrs.evolve(ONCE, answer_seconds=0.2))


@pytest.mark.parametrize("after", ["0", "-1", "soon", format_datetime(datetime(2020, 1, 1, tzinfo=UTC), usegmt=True)])
async def test_a_request_to_wait_that_says_nothing_is_none(after: str) -> None:
    async with faking((head("503 No", "text/plain", f"Retry-After: {after}"),), (GOOD,)) as fake:
        assert (await answer(fake, ModelLimits(tries=2, pause_seconds=0.01))).text == "Good"


async def test_a_date_to_wait_for_is_honoured_up_to_the_limit() -> None:
    now = datetime.now(UTC)
    dates = [
        f"Date: {format_datetime(now, usegmt=True)}",
        f"Retry-After: {format_datetime(now + timedelta(hours=1), usegmt=True)}",
    ]
    async with faking((head("429 No", "text/plain", *dates),), (GOOD,)) as fake:
        started = trio.current_time()
        assert (await answer(fake, ModelLimits(tries=2, pause_seconds=0.01, pause_most=0.3))).text == "Good"
        assert 0.3 <= trio.current_time() - started < 5


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"input_tokens": 2, "output_tokens": 3}, Usage(2, 3, 5)),
        *((bad, None) for bad in (None, "many", [1], {"prompt_tokens": -1, "completion_tokens": 1}, {"prompt_tokens": None})),
    ],
)  # fmt: skip
async def test_usage_that_makes_no_sense_harms_no_answer(usage: object, expected: Usage | None) -> None:
    pieces = sse(delta("Good"), delta(finish="stop"), {"choices": [], "usage": usage}, "[DONE]")
    found = await answered(chunked(pieces))
    assert (found.text, found.usage) == ("Good", expected)


async def test_a_service_that_knows_no_usage_of_streams_is_not_asked_for_it_again() -> None:
    refusal = (head("422 No", "application/json"), b'{"detail": "extra fields not permitted: stream_options"}')
    async with faking(refusal, (GOOD,), (GOOD,)) as fake:
        model = ChatModel(fake.url, "small-1", limits=ONCE)
        for _ in range(2):
            assert (await model.complete(PROMPT, ignore)).text == "Good"
        assert ["stream_options" in request.body for request in fake.requests] == [True, False, False]
    again = (head("422 No", "application/json"), b'{"detail": "stream_options is not the only thing"}')
    async with faking(refusal, again) as fake:
        with pytest.raises(ModelRefused, match="not the only thing"):
            await answer(fake)


async def test_what_was_not_asked_for_is_refused() -> None:
    with pytest.raises(ModelRefused, match=r"redirects \(307\), which is not followed"):
        await answered(head("307 Elsewhere", "text/plain", "Location: http://127.0.0.1:1/v1/chat/completions"))
    with pytest.raises(ModelRefused, match="is the URL of the model right"):
        await answered(head(kind="text/html; charset=utf-8"), b"<html>welcome</html>")
    with pytest.raises(ModelRefused, match="compresses"):
        await answered(head("200 OK", "text/event-stream", "Content-Encoding: gzip"), gzip.compress(HELLO))


async def test_the_environment_does_not_choose_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert (await answered(GOOD)).text == "Good"


async def test_over_tls_the_service_must_be_the_one_that_was_named() -> None:
    authority = trustme.CA()
    served, known = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(served)
    authority.configure_trust(known)
    async with faking((GOOD,), tls=served) as fake:
        assert fake.url.startswith("https://")
        with pytest.raises(ModelUnavailable, match="certificate verify failed"):
            await answer(fake)
        assert (await answer(fake, tls=known)).text == "Good"
        assert len(fake.requests) == 1


async def test_the_key_is_sent_and_nowhere_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    echo = json.dumps({"error": {"message": f"Incorrect key: {KEY}"}}).encode()
    told: list[str] = []
    async with faking(
        (head("401 No", "application/json"), echo),
        (head("503 No", "text/plain"), KEY.encode()),
        (head("200 OK", "application/json"), echo),
        (chunked(sse(json.loads(echo))),),
        (chunked(sse(delta("Good"), delta(finish="stop"))),),
    ) as fake:
        model = ChatModel(fake.url, "small-1", KEY, limits=ONCE)
        for _ in range(4):
            with pytest.raises((ModelUnavailable, ModelRefused)) as caught:
                await model.complete(PROMPT, ignore)
            told += [str(caught.value), repr(caught.value), repr(caught.value.__cause__)]
        told += [repr(model), repr(await model.complete(PROMPT, ignore))]
        assert {request.headers["authorization"] for request in fake.requests} == {f"Bearer {KEY}"}
    assert "[key]" in told[0]
    assert KEY not in "".join(told)
    assert KEY not in caplog.text


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"url": "127.0.0.1:8000/v1"}, "url"),
        ({"url": "ftp://host/v1"}, "url"),
        ({"url": "http://"}, "url"),
        ({"url": "http://user:pass@host/v1"}, "url"),
        ({"url": "http://host/v1?key=x"}, "url"),
        ({"url": "http://host:99999999/v1"}, "url"),
        ({"name": " "}, "name"),
        ({"name": "a\nb"}, "name"),
        *(({"key": key}, "key") for key in ("", " k", "k\n", "k\r\nx: y", "ключ")),
        ({"options": {"temperature": 1, "stream": False}}, "options.stream"),
    ],
)  # fmt: skip
def test_a_model_that_can_not_be_asked_is_refused_when_it_is_made(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidField) as caught:
        ChatModel(**{"url": "http://host/v1", "name": "small-1", **fields})
    assert caught.value.path == path
    assert fields.get("key") in (None, "") or str(fields["key"]) not in str(caught.value)


@pytest.mark.parametrize("tail", ["", "/", "/chat/completions", "/chat/completions/"])
def test_the_url_may_be_written_with_its_route(tail: str) -> None:
    assert ChatModel(f"http://host:8000/v1{tail}", "small-1").url == "http://host:8000/v1"
