"""A model behind any OpenAI-compatible chat completions endpoint, over httpx (CTX-7). Not here: the shapes of its answers (`answer`).

A try that fails is repeated as long as nothing of its answer has been given out: text that somebody has seen can't be taken back, so an
answer that breaks off after that is the caller's to repeat.

Invariant: cancelling ends the HTTP request at once, and the key is in no repr, log, error or event.
"""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, cast

import attrs
import httpx
import trio

from ...storage.model.errors import InvalidField, bounded
from .answer import AnswerReader, error_text
from .body import chunks_of, whole_of
from .model import BrokenAnswer, Completion, Emit, ModelRefused, ModelUnavailable, Prompt
from .retry import asked_to_wait, pause, worth_another_try
from .sse import EventParser, EventTooLong

log: Final = logging.getLogger("callboard.model")
ROUTE: Final = "/chat/completions"
DONE: Final = "[DONE]"
ERROR_BYTES: Final = 64 * 1024
ERROR_CHARS: Final = 300
_OURS: Final = frozenset({"model", "messages", "tools", "stream", "stream_options", "n"})


@attrs.frozen(kw_only=True)
class ModelLimits:
    """How long a model's service is waited for and how much is taken from it. Seconds, bytes."""

    tries: int = 4
    connect_seconds: float = 10.0
    silence_seconds: float = 120.0
    """Without a byte."""
    answer_seconds: float = 900.0
    """For one try as a whole."""
    rest_seconds: float = 5.0
    """For what follows the end of the text."""
    answer_bytes: int = 8 * 1024 * 1024
    pause_seconds: float = 0.5
    """Before the second try; doubled before each that follows."""
    pause_most: float = 60.0
    """Also what a `Retry-After` is honoured up to."""


def _endpoint(url: str) -> str:
    try:
        parsed = httpx.URL(url.strip())
    except httpx.InvalidURL:
        raise InvalidField("is not a URL", path="url") from None
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise InvalidField("must be an http or https URL, as in http://127.0.0.1:8000/v1", path="url")
    if parsed.port is not None and not 0 < parsed.port < 65_536:
        raise InvalidField("has a port that does not exist", path="url")
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise InvalidField("must have no credentials, query or fragment; the key is given apart", path="url")
    return str(parsed).rstrip("/").removesuffix(ROUTE).rstrip("/")


def _check_name(model: ChatModel, field: attrs.Attribute[str], value: str) -> None:
    if not value.strip() or not value.isprintable():
        raise InvalidField("must name a model", path="name")


def _check_key(model: ChatModel, field: attrs.Attribute[str | None], value: str | None) -> None:
    # What can't stand in a header would come back in the error of whoever writes the header.
    if value is not None and not (value.isascii() and value.isprintable() and value.strip() == value != ""):
        raise InvalidField("must be printable ASCII without spaces around it", path="key")


def _check_options(model: ChatModel, field: attrs.Attribute[Mapping[str, Any]], value: Mapping[str, Any]) -> None:
    for name in sorted(_OURS & value.keys()):
        raise InvalidField("is set by each request", path=f"options.{name}")


@attrs.define
class ChatModel:
    """The model `name` at `url` (as in `https://host/v1`); `key` is sent as bearer token.

    `options` go into every request as they are (temperature, max_tokens, …). With `stream` False the answer is asked for in one piece.
    `tls` replaces the default context. Raises `InvalidField`.
    """

    url: str = attrs.field(converter=_endpoint)
    name: str = attrs.field(validator=_check_name)
    key: str | None = attrs.field(default=None, repr=False, validator=_check_key)
    options: Mapping[str, Any] = attrs.field(factory=dict[str, Any], validator=_check_options)
    limits: ModelLimits = attrs.field(factory=ModelLimits)
    stream: bool = True
    tls: ssl.SSLContext = attrs.field(factory=httpx.create_ssl_context, repr=False)
    _counts: bool = attrs.field(default=True, init=False, repr=False)
    """Whether to ask for the usage of a stream: some refuse a field that they do not know."""

    async def complete(self, prompt: Prompt, emit: Emit) -> Completion:
        """See `Model.complete`."""
        out, tries = _Out(emit), 0
        while True:
            tries += 1
            try:
                return await self._answered(prompt, out)
            except ModelUnavailable as error:
                if out.used or tries >= self.limits.tries:
                    raise
                wait = pause(tries, error.retry_after, self.limits.pause_seconds, self.limits.pause_most)
                log.warning("%s: try %d failed (%s); again in %.1f s", self.name, tries, error.message, wait)
            await trio.sleep(wait)

    async def _answered(self, prompt: Prompt, out: _Out) -> Completion:
        limits = self.limits
        timeout = httpx.Timeout(limits.silence_seconds, connect=limits.connect_seconds)
        try:
            with trio.move_on_after(limits.answer_seconds):
                # A client for each try holds nothing afterwards. The environment's proxies are not asked, redirects not followed:
                # the key and the conversation go to the host that was named, and to no other.
                async with (
                    httpx.AsyncClient(verify=self.tls, trust_env=False, timeout=timeout) as http,
                    http.stream(
                        "POST", self.url + ROUTE, content=self._body(prompt), headers=self._headers()
                    ) as response,
                    chunks_of(response) as chunks,
                ):
                    if response.is_success:
                        return await self._read(response, chunks, out)
                    refusal = await self._refusal(response, chunks)
                if self._counts and isinstance(refusal, ModelRefused) and "stream_options" in refusal.message:
                    self._counts = False
                    return await self._answered(prompt, out)
                raise refusal
        except httpx.TimeoutException as error:
            raise ModelUnavailable(f"the model's service did not answer in time ({type(error).__name__})") from None
        except httpx.RequestError as error:
            kind = BrokenAnswer if isinstance(error, (httpx.ReadError, httpx.RemoteProtocolError)) else ModelUnavailable
            raise kind(f"the model's service can't be reached or broke off ({self._safe(_say(error))})") from None
        raise ModelUnavailable(f"the model's answer took longer than {limits.answer_seconds:g} s")

    def _body(self, prompt: Prompt) -> bytes:
        body: dict[str, Any] = {**self.options, "model": self.name, **prompt.body()}
        if self.stream:
            body["stream"] = True
            if self._counts:
                body["stream_options"] = {"include_usage": True}
        return json.dumps(body).encode()

    def _headers(self) -> dict[str, str]:
        headers = {
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": "callboard",
        }
        return headers if self.key is None else {**headers, "authorization": f"Bearer {self.key}"}

    async def _read(self, response: httpx.Response, chunks: AsyncIterator[bytes], out: _Out) -> Completion:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise ModelRefused("the model's service compresses its answers, although it was asked not to")
        if kind == "text/html":
            raise ModelRefused("a web page came instead of an answer: is the URL of the model right?")
        reader = AnswerReader()
        if kind.endswith("json"):
            body = await whole_of(chunks, self.limits.answer_bytes)
            text = reader.add(self._object(body))
            reader.end()
            await out(text)
            return reader.answer()
        await self._stream(chunks, reader, out)
        return reader.answer()

    async def _stream(self, chunks: AsyncIterator[bytes], reader: AnswerReader, out: _Out) -> None:
        parser, size = EventParser(), 0
        # Once it was said why the answer ends, only its usage may follow; neither waiting long nor a broken connection is worth that.
        with trio.CancelScope() as rest:
            try:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > self.limits.answer_bytes:
                        raise BrokenAnswer(f"the model's answer has more than {self.limits.answer_bytes} bytes")
                    for event in parser.feed(chunk):
                        if event.data == DONE:
                            reader.end()
                            return
                        await out(reader.add(self._object(event.data)))
                    if reader.whole:
                        rest.deadline = min(rest.deadline, trio.current_time() + self.limits.rest_seconds)
            except EventTooLong as error:
                raise BrokenAnswer(f"the model's answer can't be read: {error}") from None
            except httpx.RequestError:
                if not reader.whole:
                    raise
        if not reader.whole:
            raise BrokenAnswer("the model's answer broke off")

    def _object(self, text: str | bytes) -> dict[str, Any]:
        try:
            value: Any = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise BrokenAnswer("the model's service gave something that is not a JSON object")
        found = cast("dict[str, Any]", value)
        if found.get("error"):
            raise ModelUnavailable(f"the model's service failed: {self._safe(error_text(found))}")
        return found

    async def _refusal(self, response: httpx.Response, chunks: AsyncIterator[bytes]) -> ModelUnavailable | ModelRefused:
        """What an answer with any other status than success says."""
        status = response.status_code
        if response.is_redirect:
            return ModelRefused(f"the model's service redirects ({status}), which is not followed: give its final URL")
        body = await whole_of(chunks, ERROR_BYTES, cut=True)
        try:
            said = error_text(json.loads(body))
        except (ValueError, RecursionError):
            said = body.decode("utf-8", "replace")
        told = f"{status}: {self._safe(said)}" if said.strip() else f"{status} {self._safe(response.reason_phrase)}"
        if worth_another_try(status):
            wait = asked_to_wait(response.headers, datetime.now(UTC))
            return ModelUnavailable(f"the model's service is not available ({told})", retry_after=wait)
        return ModelRefused(f"the model's service refuses the request ({told})")

    def _safe(self, text: str) -> str:
        """Foreign text without the key, which some services repeat, as one short line."""
        return bounded(text if self.key is None else text.replace(self.key, "[key]"), ERROR_CHARS)


@attrs.define
class _Out:
    """Where the text goes. `used`: some of it is gone for good."""

    emit: Emit
    used: bool = False

    async def __call__(self, text: str) -> None:
        if text:
            self.used = True
            await self.emit(text)


def _say(error: Exception) -> str:
    """What went wrong, in the first words there are: httpx says nothing of its own about a certificate that can't be trusted."""
    cause: BaseException | None = error
    while cause is not None and not str(cause):
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__ if cause is None else f"{type(error).__name__}: {cause}"
