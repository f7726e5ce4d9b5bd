"""What the tests of access share: members, tokens, and browsers with cookies. Not here: any judgement."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import httpx

from callboard.tests.flows.edge_kit import DEADLINE, Served


@attrs.frozen
class Key:
    """A token as its holder has it."""

    token: str
    id: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


async def add_member(served: Served, name: str, *projects: str) -> None:
    """Give a member projects, by default the one that is always there."""
    for project in projects or ("default",):
        answer = await served.client.post("/v1/members", json={"name": name, "project": project})
        assert answer.status_code == 201, answer.text


async def make_key(served: Served, **fields: Any) -> Key:
    """A token over HTTP, from the operator."""
    answer = await served.client.post("/v1/tokens", json=fields)
    assert answer.status_code == 201, answer.text
    return Key(answer.json()["token"], answer.json()["id"])


async def member_key(served: Served, name: str, *projects: str) -> Key:
    """A member with a token."""
    await add_member(served, name, *projects)
    return await make_key(served, member=name)


async def ask_for_ticket(served: Served, headers: dict[str, str] | None = None, **fields: Any) -> str:
    """A ticket, by default the operator's."""
    answer = await served.client.post("/v1/tickets", json=fields, headers=headers or served.headers)
    assert answer.status_code == 201, answer.text
    assert set(answer.json()) == {"ticket", "expires"}
    return answer.json()["ticket"]


def browser(served: Served) -> httpx.AsyncClient:
    """A client with cookies of its own and no token; its writes name our origin, as a browser's do."""
    return httpx.AsyncClient(base_url=served.url, timeout=DEADLINE, headers={"Origin": served.url}, trust_env=False)


@asynccontextmanager
async def enter(
    served: Served, headers: dict[str, str] | None = None, **fields: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that came in by a console link, by default the operator's."""
    ticket = await ask_for_ticket(served, headers, kind="console", **fields)
    async with browser(served) as page:
        answer = await page.get(f"/?ticket={ticket}")
        assert (answer.status_code, answer.headers["location"]) == (303, "/"), answer.text
        yield page


def cookie_of(client: httpx.AsyncClient) -> str:
    """The Cookie field that a browser sends."""
    return "; ".join(f"{cookie.name}={cookie.value}" for cookie in client.cookies.jar)


class _NoToken(Served):
    @property
    def headers(self) -> dict[str, str]:
        return {}


def without_token(served: Served) -> Served:
    """The same server, whose streams and websockets send no bearer."""
    return _NoToken(served.url, "", served.runtime, served.client, served.front)
