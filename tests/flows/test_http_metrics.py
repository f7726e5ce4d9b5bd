"""Metrics over HTTP: true figures under the documented names, in the format that was asked for, and no text that anybody wrote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trio
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from callboard.actors.ports import Tuning
from callboard.storage.ops import Claim
from callboard.supervisors import metrics as module
from callboard.tests.flows.edge_kit import AGENTS, DEADLINE, Served, serving_runtime

README = Path(__file__).parents[2] / "README.md"
SECRET = "a-secret-text"
Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def scrape(served: Served) -> Values:
    answer = await served.client.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in prometheus(answer.text)
        for sample in family.samples
    }


def value(found: Values, name: str, **labels: str) -> float:
    return found[f"callboard_{name}", tuple(sorted(labels.items()))]


@pytest.mark.spec("OPS-4")
async def test_messages_and_turns_are_counted_by_how_they_ended(tmp_path: Path) -> None:
    async with serving_runtime(tmp_path, tuning=Tuning(pair_per_minute=0)) as served:
        desk, silent, patient = await served.open(), await served.open("silent"), await served.open("patient")
        await served.say(desk, f"echo {SECRET}")
        await served.say(silent, "hush")
        await served.post(patient, "work")
        await served.until(patient, "turn.token")
        live = await scrape(served)
        await served.client.post(f"/v1/sessions/{patient}/stop")
        await served.until(patient, "turn.stopped")
        broken = await served.open("broken")
        failed = await served.post(broken, SECRET)
        await served.until(broken, "attempt.relinquished")
        await served.client.post(f"/v1/inbox/{failed['message_id']}/cancel")
        found = await scrape(served)
    assert (value(live, "turns_live"), value(found, "turns_live"), value(found, "turns_stuck")) == (1, 0, 0)
    assert value(found, "messages_accepted_total", kind="member_message") == 4
    final = {
        (outcome, reason): value(found, "messages_final_total", outcome=outcome, reason=reason)
        for outcome, reason in (("answered", ""), ("no_visible_reply", ""), ("stopped", ""), ("failed", "cancelled"))
    }
    assert set(final.values()) == {1}
    ends = ("answered", "no_visible_reply", "stopped", "retried")
    assert [value(found, "turns_total", end=end) for end in ends] == [1, 1, 1, 1]
    assert value(found, "turn_seconds_count") == 4
    assert value(found, "turn_seconds_bucket", le="+Inf") == 4
    assert value(found, "turn_seconds_sum") > 0


@pytest.mark.spec("OPS-4")
async def test_requests_are_counted_by_route_and_status(served: Served) -> None:
    session = await served.open()
    for _ in range(2):
        await served.client.get(f"/v1/sessions/{session}")
    await served.client.get("/v1/sessions/ses_none")
    await served.client.get("/nowhere/at/all")
    await served.client.request("BREW", "/v1/sessions")
    await served.client.get("/v1/sessions", headers={"Authorization": "Bearer wrong"})
    found = await scrape(served)
    route = "/v1/sessions/{id}"
    assert value(found, "requests_total", route=route, method="GET", status="200") == 2
    assert value(found, "requests_total", route=route, method="GET", status="404") == 1
    assert value(found, "requests_total", route="", method="GET", status="404") == 1
    assert value(found, "requests_total", route="", method="GET", status="401") == 1
    assert value(found, "requests_total", route="", method="other", status="405") == 1
    assert not [labels for name, labels in found if session in str(labels)]


async def test_connections_and_followers_are_there_while_they_are(served: Served) -> None:
    session = await served.open()
    async with served.live() as live, served.stream(f"/v1/sessions/{session}/events") as events:
        await live.ask("subscribe", session=session)
        await served.say(session, "echo hi")
        await live.until("turn.completed")
        await events.until("turn.completed")
        found = await scrape(served)
        assert (value(found, "connections"), value(found, "websockets")) == (3, 1)
        assert (value(found, "followers"), value(found, "tails")) == (2, 1)
        assert value(found, "connections_accepted_total") == 3


@pytest.mark.spec("OPS-4")
async def test_what_waits_and_what_is_held_is_seen(served: Served) -> None:
    await served.runtime.dispatcher.shut_down(0)
    first, second = await served.open(), await served.open()
    for session in (first, second):
        await served.post(session, "echo hi")
    claim = Claim(holder="worker", nonce="n", limit=1, lease_seconds=60, agents=frozenset(AGENTS))
    await served.runtime.store.apply(claim)
    found = await scrape(served)
    assert (value(found, "mailboxes_due"), value(found, "leases"), value(found, "store_up")) == (1, 1, 1)
    assert 0 < value(found, "lag_seconds") < DEADLINE
    assert value(found, "commit_ops_total") >= value(found, "commit_batches_total") > 0


async def test_a_store_that_does_not_answer_costs_its_own_figures_alone(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(now: float) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(module, "READ_SECONDS", 0.05)
    monkeypatch.setattr(served.runtime.store.reads, "counts", never)
    found = await scrape(served)
    assert value(found, "store_up") == 0
    assert not [name for name, _ in found if name == "callboard_lag_seconds"]
    assert value(found, "connections") == 1


async def test_openmetrics_is_given_to_who_asks_for_it(served: Served) -> None:
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    answer = await served.client.get("/metrics", headers={"Accept": accept})
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    names = {family.name for family in openmetrics(answer.text)}
    assert {"callboard_turns", "callboard_lag_seconds", "callboard_turn_seconds"} <= names
    await served.refused("GET", "/metrics?x=1", 400, "invalid_field")


@pytest.mark.spec("OPS-4")
async def test_two_runtimes_of_a_process_count_apart_and_restarts_are_seen(tmp_path: Path) -> None:
    async with serving_runtime(tmp_path / "one") as one, serving_runtime(tmp_path / "two") as two:
        await one.say(await one.open(), "echo hi")
        found, other = await scrape(one), await scrape(two)
        assert value(found, "turns_total", end="answered") == 1
        assert not [name for name, _ in other if name == "callboard_turns_total"]
        assert value(found, "restarts", child="store") == 0
        one.runtime.dispatcher.scope.cancel()
        one.front.listening = trio.Event()
        await one.front.listening.wait()
        again = await scrape(one)
        assert value(again, "restarts", child="dispatcher") == 1
        assert value(again, "turns_total", end="answered") == 1, "what was counted outlives a restart of the front"


@pytest.mark.spec("OPS-4")
async def test_the_names_are_those_in_the_readme(served: Served) -> None:
    await served.say(await served.open(), f"echo {SECRET}")
    text = (await served.client.get("/metrics")).text
    assert SECRET not in text
    assert served.token not in text
    found = {family.name for family in prometheus(text) if family.name.startswith("callboard_")}
    documented: set[str] = set(re.findall(r"`(callboard_[a-z_]+)(?:\{[a-z, ]+\})?`", README.read_text("utf-8")))
    assert {name.removesuffix("_total") for name in documented} == found
