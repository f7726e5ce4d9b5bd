"""The running server, asked over HTTP with the operator's token. Not here: the websocket (`chat`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

import httpx

from ...actors.edges.auth import PROJECT
from ...actors.edges.token_file import TOKEN_FILE, load_or_create_token
from ...storage.model.errors import CallboardError, Rejected, Unavailable, UnknownTarget, error_named
from ...storage.wire import parse_object
from .announce import Server
from .board import Json, check_session, requeue_key

SECONDS: Final = 30.0
COPY_SECONDS: Final = 600.0
"""For the first byte of a backup: the server sends nothing before its copy is made, which takes a second for 200 MB."""
KEY: Final = "Idempotency-Key"


class Remote:
    """A `Board` over HTTP."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def sessions(self, **filters: Any) -> Json:
        return await self._ask("GET", "/v1/sessions", params=_given(filters))

    async def session(self, session: str) -> str:
        name = check_session(session)
        if not name.startswith("/"):
            return name
        found = await self.sessions(path=name)
        if not found["sessions"]:
            raise UnknownTarget("no session has this path", path="path")
        return found["sessions"][0]["id"]

    async def directory(self, cursor: str | None) -> Json:
        return await self._ask("GET", "/v1/directory", params=_given({"cursor": cursor}))

    async def rename(self, session: str, path: str | None, title: str | None) -> Json:
        return await self._of(session, "PATCH", "", json=_given({"path": path, "title": title}))

    async def policy(self, project: str | None) -> Json:
        return await self._ask("GET", "/v1/policy", headers=_acting(project))

    async def set_policy(self, rule: Json, project: str | None) -> Json:
        return await self._ask("PUT", "/v1/policy", json=rule, headers=_acting(project))

    async def transcript(self, session: str, *, after: int = 0, limit: int | None = None) -> Json:
        return await self._of(session, "GET", "/transcript", params=_given({"after": after, "limit": limit}))

    async def send(self, session: str, content: str, message_id: str | None) -> Json:
        return await self._of(session, "POST", "/messages", json=_given({"content": content, "message_id": message_id}))

    async def stop(self, session: str, *, drop_queued: bool) -> Json:
        return await self._of(session, "POST", "/stop", json={"drop_queued": drop_queued})

    async def inbox(self, **filters: Any) -> Json:
        target = filters.pop("target", None)
        if target is not None:
            filters["target"] = known = await self.session(target)
            # A filter by an id that does not exist would be an empty listing, as if nothing had been sent there.
            await self._ask("GET", f"/v1/sessions/{quote(known, safe='')}")
        return await self._ask("GET", "/v1/inbox", params=_given(filters))

    async def message(self, message: str) -> Json:
        return await self._ask("GET", f"/v1/messages/{quote(message, safe='')}")

    async def prompt(self, session: str) -> Json:
        return await self._of(session, "GET", "/prompt")

    async def requeue(self, message: str) -> Json:
        known = (await self.message(message))["id"]
        return await self._ask("POST", f"/v1/inbox/{known}/requeue", headers={KEY: requeue_key(known)})

    async def cancel(self, message: str) -> Json:
        return await self._ask("POST", f"/v1/inbox/{quote(message, safe='')}/cancel")

    async def prune(self, older_than_seconds: float, project: str | None) -> Json:
        body = {"older_than_seconds": older_than_seconds}
        return await self._ask("POST", "/v1/inbox/prune", json=body, headers=_acting(project))

    async def backup(self, write: Callable[[bytes], None], tell: Callable[[int, int], None]) -> None:
        """Have all of a backup written. `tell` is told of the bytes that have come, and of how many there are."""
        timeout = httpx.Timeout(SECONDS, read=COPY_SECONDS)
        done = 0
        try:
            async with self._client.stream("POST", "/v1/backup", timeout=timeout) as answer:
                if not answer.is_success:
                    await answer.aread()
                    raise _refusal(answer)
                total = int(answer.headers["Content-Length"])
                async for data in answer.aiter_raw():
                    write(data)
                    done += len(data)
                    tell(done, total)
        except httpx.HTTPError as error:
            raise Unavailable(f"the server's copy did not come: {error or type(error).__name__}") from error

    async def doctor(self) -> Json:
        """The server's own report."""
        return await self._ask("GET", "/v1/doctor")

    async def health(self) -> Json:
        """{status, failing, stuck}, whether it can take work or not."""
        answer = await self._client.get("/healthz")
        return parse_object(answer.content)

    async def members(self, **filters: Any) -> Json:
        return await self._ask("GET", "/v1/members", params=_given(filters))

    async def add_member(self, name: str, project: str | None) -> Json:
        return await self._ask("POST", "/v1/members", json=_given({"name": name, "project": project}))

    async def suspend_member(self, name: str, *, suspended: bool) -> Json:
        return await self._ask("POST", f"/v1/members/{quote(name, safe='')}/{'suspend' if suspended else 'resume'}")

    async def tokens(self, **filters: Any) -> Json:
        return await self._ask("GET", "/v1/tokens", params=_given(filters))

    async def create_token(self, member: str | None, project: str | None, label: str) -> Json:
        fields = _given({"member": member, "project": project, "label": label})
        return await self._ask("POST", "/v1/tokens", json=fields)

    async def revoke_token(self, id: str) -> Json:
        return await self._ask("POST", f"/v1/tokens/{quote(id, safe='')}/revoke")

    async def console_ticket(self, member: str | None) -> Json:
        return await self._ask("POST", "/v1/tickets", json=_given({"kind": "console", "member": member}))

    async def _of(self, session: str, method: str, rest: str, **request: Any) -> Json:
        name = quote(await self.session(session), safe="")
        return await self._ask(method, f"/v1/sessions/{name}{rest}", **request)

    async def _ask(self, method: str, path: str, **request: Any) -> Json:
        try:
            answer = await self._client.request(method, path, **request)
        except httpx.HTTPError as error:
            raise Unavailable(f"the server did not answer: {error or type(error).__name__}") from error
        if answer.is_success:
            return parse_object(answer.content)
        raise _refusal(answer)


@asynccontextmanager
async def open_remote(server: Server, folder: Path) -> AsyncIterator[Remote | None]:
    """The server, or None if nobody answers at its address: it was killed. Raises `Rejected` for a token that can't be read."""
    try:
        address = httpx.URL(server.url)
    except httpx.InvalidURL as error:
        raise Rejected(f"server.json names no address: {error}") from error
    async with httpx.AsyncClient(
        base_url=address,
        verify=server.tls or True,
        timeout=SECONDS,
        trust_env=False,  # it is on this machine, and a proxy has no business with its token
    ) as client:
        try:
            await client.get("/healthz")
        except httpx.ConnectError:
            yield None
            return
        except httpx.HTTPError as error:
            raise Unavailable(f"the server at {server.url} does not answer: {error or type(error).__name__}") from error
        # Only now: at the address of a server that was killed there might be anybody.
        client.headers["Authorization"] = f"Bearer {operator_token(folder)}"
        yield Remote(client)


def operator_token(folder: Path) -> str:
    """The token that the server of `folder` has made. Raises `Rejected` if it is missing or can't be trusted."""
    if not (folder / TOKEN_FILE).exists():
        raise Rejected("is missing; the server makes it when it starts", path=str(folder / TOKEN_FILE))
    return load_or_create_token(folder)


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _acting(project: str | None) -> dict[str, str]:
    return {} if project is None else {PROJECT: project}


def _refusal(answer: httpx.Response) -> CallboardError:
    try:
        error = cast("dict[str, Any]", parse_object(answer.content)["error"])
        return error_named(error["code"], error["message"], error.get("path"))
    except (CallboardError, KeyError, TypeError, AttributeError):
        return Rejected(f"the server answered {answer.status_code}")
