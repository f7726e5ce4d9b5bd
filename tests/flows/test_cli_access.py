"""`callboard member`, `token` and `console`, answered by a running server and without one. The server is a real process."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from callboard.tests.flows.cli_kit import DEADLINE, Here, Serving, running, serving


def client(server: Serving, token: str) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.AsyncClient(base_url=server.url, headers=headers, timeout=DEADLINE, trust_env=False)


async def story(here: Here, folder: Path) -> dict[str, str]:
    """Members and tokens from nothing, as a person makes them; returns the tokens by name."""
    added = (await here("member", "add", "ann", "--project", "beta", "--json", folder=folder)).json
    assert set(added) == {"name", "projects", "created", "suspended"}
    assert (added["name"], added["projects"], added["suspended"]) == ("ann", ["beta"], None)
    again = (await here("member", "add", "ann", "--json", folder=folder)).json
    assert again["projects"] == ["beta", "default"]
    tokens: dict[str, str] = {}
    ids: dict[str, str] = {}
    for name, given in {
        "operator": [],
        "project": ["--project", "beta", "--label", "billing"],
        "member": ["--member", "ann"],
        "bound": ["--member", "ann", "--project", "beta"],
    }.items():
        made = (await here("token", "create", *given, "--json", folder=folder)).json
        assert list(made) == ["token", "id"]
        tokens[name], ids[name] = made["token"], made["id"]
    listed = (await here("token", "list", "--json", folder=folder)).json
    assert [token["id"] for token in listed["tokens"]] == list(ids.values())[::-1]
    assert not [secret for secret in tokens.values() if secret in json.dumps(listed)]
    page = (await here("token", "list", "--limit", "3", "--json", folder=folder)).json
    rest = (await here("token", "list", "--cursor", page["next"], "--json", folder=folder)).json
    assert [token["id"] for token in rest["tokens"]] == [ids["operator"]]
    text = await here("token", "create", "--member", "ann", folder=folder)
    assert (text.code, len(text.out.strip())) == (0, 43)
    (spare,) = [word for word in text.err.split() if word.startswith("tok_")]
    revoked = await here("token", "revoke", spare.rstrip(";"), folder=folder)
    assert (revoked.code, "revoked" in revoked.out) == (0, True)
    table = await here("token", "list", folder=folder)
    assert all(word in table.out for word in ("CARRIER", "billing", "ann", "revoked", ids["bound"]))
    for arguments, why in (
        (("token", "create", "--member", "nobody"), "there is no such member"),
        (("token", "create", "--project", "never"), "there is no such project"),
        (("token", "create", "--member", "ann", "--project", "never"), "ann has no project of that name"),
        (("token", "revoke", "tok_never"), "there is no such token"),
        (("member", "suspend", "nobody"), "there is no such member"),
        (("member", "add", "operator"), "Callboard's own"),
        (("member", "add", "Ann"), "must be"),
        (("member", "add", "ann", "--project", "A/B"), "must be"),
        (("token", "create", "--label", "two\nlines"), "must be one line"),
    ):
        done = await here(*arguments, folder=folder)
        assert done.code == 1, arguments
        assert why in done.refusal, arguments
    assert (await here("token", "create", "--limit", "3", folder=folder)).code == 2
    return tokens


@pytest.mark.spec("AUTH-1", "AUTH-3")
async def test_members_and_tokens_with_a_running_server(tmp_path: Path, here: Here) -> None:
    async with serving(tmp_path) as server:
        tokens = await story(here, tmp_path)
        seen = {"operator": (200, 200), "project": (200, 404), "member": (400, 400), "bound": (200, 404)}
        for name, statuses in seen.items():
            async with client(server, tokens[name]) as http:
                found = [(await http.get(path)).status_code for path in ("/v1/sessions", "/v1/tree")]
            assert tuple(found) == statuses, name
        async with client(server, tokens["project"]) as http:
            made = await http.post("/v1/sessions", json={"agent": "front-desk"})
            assert made.status_code == 201
        async with client(server, tokens["bound"]) as http:
            assert [item["id"] for item in (await http.get("/v1/sessions")).json()["sessions"]] == [made.json()["id"]]
        done = await here("member", "suspend", "ann", folder=tmp_path)
        assert (done.code, "suspended since" in done.out) == (0, True)
        async with client(server, tokens["bound"]) as http:
            assert (await http.get("/v1/sessions")).status_code == 401
        listed = (await here("member", "list", "--json", folder=tmp_path)).json["members"]
        assert [(item["name"], item["suspended"] is None) for item in listed] == [("ann", False)]
        assert (await here("member", "suspend", "ann", "--undo", "--json", folder=tmp_path)).json["suspended"] is None
        async with client(server, tokens["bound"]) as http:
            assert (await http.get("/v1/sessions")).status_code == 200
        assert not [secret for secret in tokens.values() if secret in server.command.err.text]


@pytest.mark.spec("AUTH-1", "AUTH-3")
async def test_members_and_tokens_without_a_server_are_there_when_it_starts(tmp_path: Path, here: Here) -> None:
    assert (await here("member", "list", folder=tmp_path)).code == 1
    assert (await here("migrate", folder=tmp_path)).code == 0
    tokens = await story(here, tmp_path)
    assert "no server runs" in (await here("console", folder=tmp_path)).refusal
    async with serving(tmp_path) as server, client(server, tokens["bound"]) as http:
        assert (await http.get("/v1/whoami")).json() == {
            "kind": "member",
            "name": "ann",
            "projects": ["beta"],
            "project": "beta",
        }


@pytest.mark.spec("AUTH-1", "OPS-1")
async def test_links_to_the_console_are_good_once(tmp_path: Path, here: Here) -> None:
    async with serving(tmp_path) as server:
        links = [json.loads(await server.command.out.line())["console"]]
        links.append((await here("console", folder=tmp_path)).out.strip())
        told = (await here("console", "--json", folder=tmp_path)).json
        assert list(told) == ["console", "expires"]
        links.append(told["console"])
        await here("member", "add", "ann", folder=tmp_path)
        links.append((await here("console", "--member", "ann", folder=tmp_path)).out.strip())
        assert "no such member" in (await here("console", "--member", "bob", folder=tmp_path)).refusal
        assert len(set(links)) == 4
        names: list[str] = []
        for link in links:
            assert link.startswith(f"{server.url}/?ticket=")
            async with httpx.AsyncClient(base_url=server.url, timeout=DEADLINE, trust_env=False) as page:
                assert (await page.get(link)).status_code == 303
                names.append((await page.get("/v1/whoami")).json()["name"])
                page.cookies.clear()
                assert (await page.get(link)).status_code == 401
        assert names == ["operator", "operator", "operator", "ann"]
        tickets = [link.partition("=")[2] for link in links]
        assert not [ticket for ticket in tickets if ticket in server.command.err.text]


async def test_for_people_serve_prints_the_link_too(tmp_path: Path) -> None:
    async with running("serve", "--port", "0", folder=tmp_path) as command:
        text = await command.out.until("sessions list")
        (link,) = [word for word in text.split() if "/?ticket=" in word]
        async with httpx.AsyncClient(timeout=DEADLINE, trust_env=False) as page:
            assert (await page.get(link)).status_code == 303
