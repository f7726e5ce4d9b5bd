"""Retention by command and by setting: over a server and on the store alone; what goes, what stays, what is refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from callboard import Tuning
from callboard.actors.dispatch import janitor
from callboard.actors.dispatch.janitor import PAUSE_SECONDS
from callboard.storage.model.limits import PRUNE_MOST
from callboard.supervisors.cli.retention import seconds_in
from callboard.tests.flows.cli_kit import run, serving
from callboard.tests.flows.edge_kit import Served, serving_runtime


async def bodies(folder: Path) -> list[str]:
    listed = (await run("inbox", "list", "--json", folder=folder)).json["messages"]
    return [message["content"] for message in listed]


@pytest.mark.spec("INB-12")
async def test_bodies_go_and_the_transcript_stays_with_a_server_and_without(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await server.post("/", "echo one")
        await server.until("/", lambda kind, _: kind == "turn.completed")
        assert (await run("inbox", "prune", "--older-than", "1h", "--json", folder=tmp_path)).json == {
            "blanked": 0,
            "deleted": 0,
        }
        assert await bodies(tmp_path) == ["echo one"]
        assert (await run("inbox", "prune", "--older-than", "0s", "--json", folder=tmp_path)).json["blanked"] == 1
        assert await bodies(tmp_path) == [""]
        assert [entry["content"] for entry in await server.transcript("/")] == ["echo one", "one"]
    assert (await run("sessions", "send", "/", "echo two", folder=tmp_path)).code == 0
    done = await run("inbox", "prune", "--older-than", "0s", folder=tmp_path)
    assert (done.code, done.out) == (0, "bodies forgotten: 0, rows deleted: 0; transcripts are as they were\n")
    assert await bodies(tmp_path) == ["echo two", ""], "what waits is untouched"


@pytest.mark.spec("INB-12")
async def test_a_project_is_pruned_by_its_name(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await server.post("/", "echo one")
        await server.until("/", lambda kind, _: kind == "turn.completed")
        done = await run("inbox", "prune", "--older-than", "0s", "--project", "other", folder=tmp_path)
        assert (done.code, done.out) == (1, "")
        assert await bodies(tmp_path) == ["echo one"]
        done = await run("inbox", "prune", "--older-than", "0s", "--project", "default", "--json", folder=tmp_path)
        assert done.json["blanked"] == 1


@pytest.mark.parametrize("age", ["", "30", "d", "-1d", "1.5h", "1y", "1d1h", "１d"])
async def test_an_age_that_is_none_is_wrong_use(tmp_path: Path, age: str) -> None:
    done = await run("inbox", "prune", f"--older-than={age}", folder=tmp_path)
    assert done.code == 2
    assert "--older-than" in done.refusal


def test_ages() -> None:
    assert [seconds_in(age) for age in ("90s", "2m", "3h", "30d", "1w")] == [90, 120, 10_800, 2_592_000, 604_800]


# -- over HTTP ------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("INB-12")
async def test_pruning_over_http_tells_what_it_did_and_refuses_what_is_wrong(served: Served) -> None:
    session = await served.open()
    message = await served.say(session, "echo hi", message_id="m-1")
    answer = await served.client.post("/v1/inbox/prune", json={"older_than_seconds": 0})
    assert (answer.status_code, answer.json()) == (200, {"blanked": 1, "deleted": 0, "more": False})
    shown = (await served.client.get("/v1/messages/m-1")).json()
    assert "pruned_at" in shown
    assert {name: shown[name] for name in ("id", "status", "outcome", "stages", "turn_id")} == {
        name: message[name] for name in ("id", "status", "outcome", "stages", "turn_id")
    }
    again = await served.post(session, "echo hi", message_id="m-1")
    assert (again["created"], again["status"]) == (False, "delivered")
    await served.refused("POST", f"/v1/inbox/{message['id']}/requeue", 409, "illegal_move")
    bad: tuple[tuple[Any, str], ...] = (
        ({}, "older_than_seconds"),
        ({"older_than_seconds": -1}, "older_than_seconds"),
        ({"older_than_seconds": "1d"}, "older_than_seconds"),
        ({"older_than_seconds": 1, "project": "x"}, "project"),
    )
    for body, path in bad:
        error = await served.refused("POST", "/v1/inbox/prune", 400, "invalid_field", json=body)
        assert error["path"] == path


@pytest.mark.spec("RT-14")
async def test_more_than_one_op_prunes_is_pruned_by_the_desk(served: Served) -> None:
    session = await served.open("silent")
    names = [f"m-{number}" for number in range(PRUNE_MOST + 5)]
    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(partial(served.runtime.send, session, "go", message_id=name))
    for name in names:
        await served.runtime.wait(name)
    desk, scope = served.runtime.desk, served.runtime.scope
    pruned = await desk.prune(scope, 0, seconds=0)
    assert (pruned.blanked, pruned.more) == (PRUNE_MOST, True), "its time was over after one op"
    assert (await desk.prune(scope, 0)).blanked == 5


@pytest.mark.spec("INB-12")
@pytest.mark.parametrize("keep", [0.0, None])
async def test_the_janitor_prunes_by_the_setting_and_not_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: float | None
) -> None:
    async with serving_runtime(tmp_path) as served:
        await served.say(await served.open(), "echo hi")
    looked = trio.Event()
    pause = trio.sleep

    async def slept(seconds: float) -> None:
        if seconds == PAUSE_SECONDS:
            looked.set()
        await pause(seconds)

    monkeypatch.setattr(janitor.trio, "sleep", slept)
    async with serving_runtime(tmp_path, tuning=Tuning(message_keep_seconds=keep)) as served:
        await looked.wait()
        (message,) = (await served.client.get("/v1/inbox")).json()["messages"]
    assert message["content"] == ("echo hi" if keep is None else "")
