"""The OpenAPI document: it names every address and nothing else, and the server does what it says, whatever is sent.

The fuzz run is schemathesis as a process of its own, against a real front. What it leaves out, and why: event streams have no end, and
`/v1/live` is a websocket (both have tests of their own); a message's key must agree with its message_id, which a schema can't say.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from callboard.actors.edges.app import PUBLIC, ROUTES
from callboard.actors.edges.live import PATH as LIVE
from callboard.actors.edges.openapi.document import openapi
from callboard.tests.flows import edge_kit
from callboard.tests.flows.edge_kit import Served, serving_runtime

SECONDS = 25
"""For the fuzz run to generate; it finishes what it has begun."""


def document() -> dict[str, Any]:
    return json.loads(json.dumps(openapi()))


def operations(found: dict[str, Any]) -> set[tuple[str, str]]:
    return {(path, method.upper()) for path, methods in found["paths"].items() for method in methods}


def test_it_names_every_address_and_method_of_the_application_and_no_other() -> None:
    served = {(path, method) for path, methods in {**PUBLIC, **ROUTES}.items() for method in methods}
    assert operations(document()) == served | {(LIVE, "GET")}


def test_names_are_unique_and_every_shape_is_there_and_used() -> None:
    found = document()
    ids = [operation["operationId"] for methods in found["paths"].values() for operation in methods.values()]
    assert len(set(ids)) == len(ids)
    text = json.dumps(found)
    used = set(re.findall(r"#/components/schemas/(\w+)", text))
    assert used | {"EventData"} == set(found["components"]["schemas"])


async def test_it_needs_no_token_and_says_which_addresses_need_one(served: Served) -> None:
    async with httpx.AsyncClient(base_url=served.url) as nobody:
        answer = await nobody.get("/openapi.json")
        assert (answer.status_code, answer.json()) == (200, document())
        assert answer.json()["openapi"] == "3.1.0"
    for path, methods in document()["paths"].items():
        for operation in methods.values():
            assert (operation.get("security") == []) is (path in PUBLIC), path


async def test_streams_answer_as_documented(served: Served) -> None:
    session = await served.open()
    message = await served.say(session, "echo hi")
    for path, name in ((f"/v1/sessions/{session}/events", "/v1/sessions/{id}/events"),):
        async with served.stream(path) as events:
            told = document()["paths"][name]["get"]["responses"][str(events.status)]
            assert list(told["content"]) == [events.headers["content-type"].partition(";")[0]]
    ended = await served.client.get(f"/v1/turns/{message['turn_id']}/events", headers={"Last-Event-ID": "99"})
    assert str(ended.status_code) in document()["paths"]["/v1/turns/{id}/events"]["get"]["responses"]


def sealed(schema: Any) -> None:
    """An answer with a field that the document does not name must be found."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" and "properties" in schema:
            schema.setdefault("additionalProperties", False)
        for value in schema.values():
            sealed(value)
    elif isinstance(schema, list):
        for value in schema:
            sealed(value)


async def filled(served: Served, found: dict[str, Any]) -> None:
    """Put ids of what there is into the document: random ones would find nothing."""
    sealed(found["components"]["schemas"])
    sessions = [await served.open() for _ in range(4)]
    messages = [(await served.say(session, "echo hi"))["id"] for session in sessions]
    for agent in ("patient", "patient", "broken"):
        sessions.append(await served.open(agent))
        messages.append((await served.post(sessions[-1], "work"))["message_id"])
        messages.append((await served.post(sessions[-1], "waits"))["message_id"])
    for name in ("ann", "bob"):
        assert (await served.client.post("/v1/members", json={"name": name})).status_code == 201
    agent = found["components"]["schemas"]["NewSession"]["properties"]
    agent["agent"] = {"enum": sorted(served.runtime.agents)}
    known = {"/v1/sessions/": sessions, "/v1/messages/": messages, "/v1/inbox/": messages}
    for path, methods in found["paths"].items():
        for prefix, ids in known.items():
            for operation in methods.values() if path.startswith(prefix) else ():
                for parameter in operation["parameters"]:
                    if parameter["in"] == "path":
                        parameter["schema"] = {"enum": ids}
    post = found["paths"]["/v1/sessions/{id}/messages"]["post"]
    post["parameters"] = [item for item in post["parameters"] if item["name"] != "Idempotency-Key"]


async def test_the_server_does_what_the_document_says_whatever_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_kit, "DEADLINE", 240.0)
    found = document()
    async with serving_runtime(tmp_path) as served:
        await filled(served, found)
        file = tmp_path / "openapi.json"
        file.write_text(json.dumps(found))
        ran = await trio.run_process(
            [
                sys.executable, "-m", "schemathesis.cli", "run", str(file), "--url", served.url,
                "--header", f"Authorization: Bearer {served.token}", "--checks", "all",
                "--exclude-path-regex", "(/events|/v1/live)$", "--phases", "coverage,fuzzing", "--max-examples", "4",
                "--max-time", str(SECONDS), "--seed", "1", "--workers", "1", "--no-color",
            ],
            cwd=tmp_path,
            check=False,
            capture_stdout=True,
            capture_stderr=True,
        )  # fmt: skip
        said = ran.stdout.decode()
        assert ran.returncode == 0, said[-6_000:] + ran.stderr.decode()[-1_000:]
        tested = re.search(r"Tested: (\d+)", said)
        assert tested is not None
        assert int(tested[1]) == len(operations(found)) - 3, said[-2_000:]
        health = (await served.client.get("/healthz")).json()
        assert (health["status"], health["stuck"]) == ("ok", [])
        assert served.front.counts is not None
        assert served.front.counts.failures == 0
        assert all(node.restarts == 0 for node in served.runtime.snapshot().children)
