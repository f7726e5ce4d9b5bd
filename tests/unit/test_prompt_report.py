"""What changed between two prompts: the length of what they begin with alike, which parts differ, and by which bytes."""

from __future__ import annotations

import json

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.models.model import ToolSpec
from callboard.actors.session.prompt.assembly import Assembled
from callboard.actors.session.prompt.blocks import Rendered
from callboard.actors.session.prompt.report import KEPT, SHOWN_BYTES, Sent, compared
from callboard.storage.model.addresses import Scope


def prompt(*blocks: tuple[str, str], tail: tuple[str, ...] = ("hello",), system: str = "You are.") -> Assembled:
    return Assembled(
        {"role": "system", "content": system},
        (ToolSpec("look", "Looks.", {"type": "object"}),),
        tuple(Rendered(*block) for block in blocks),
        tuple({"role": "user", "content": text} for text in tail),
    )


def size(found: Assembled) -> int:
    return sum(len(part.data) for part in found.parts())


def changed(before: Assembled, now: Assembled) -> list[tuple[str, str, str]]:
    return [(item["part"], item["removed"], item["added"]) for item in compared(before, now)["changed"]]


@pytest.mark.spec("CTX-3")
def test_the_parts_stand_in_the_order_of_the_request_and_are_all_of_it() -> None:
    found = prompt(("date", "Monday"), ("directory", "- /ops"), tail=("a", "b"))
    parts = found.parts()
    assert [part.name for part in parts] == ["system", "tools", "block date", "block directory", "tail 1", "tail 2"]
    messages = [json.loads(part.data) for part in parts if part.name != "tools"]
    assert messages == list(found.prompt.messages)
    assert json.loads(parts[1].data) == [attrs.asdict(tool) for tool in found.prompt.tools]
    bare = attrs.evolve(found, tools=())
    assert [part.name for part in bare.parts()] == ["system", *[part.name for part in parts[2:]]]


def test_the_same_has_all_in_common() -> None:
    found = prompt(("date", "Monday"))
    assert compared(found, found) == {"bytes": size(found), "common": size(found), "percent": 100.0, "changed": []}


@pytest.mark.spec("CTX-4")
def test_a_changed_block_leaves_what_stands_before_it_in_common() -> None:
    before = prompt(("date", "Monday"), ("directory", "- /ops\n- /research"))
    now = prompt(("date", "Monday"), ("directory", "- /ops\n- /ops/deploy\n- /research"))
    found = compared(before, now)
    start = sum(len(part.data) for part in now.parts()[:3])
    assert start < found["common"] < start + len(now.parts()[3].data)
    assert found["percent"] == round(100 * found["common"] / size(now), 1)
    assert found["changed"] == [
        {"part": "block directory", "at": found["common"] - start, "removed": "", "added": "ops/deploy\\n- /"}
    ]


def test_parts_that_come_and_go_are_named() -> None:
    before = prompt(("date", "Monday"), ("queued", "1"), tail=("a",))
    now = prompt(("date", "Monday"), tail=("a", "b"))
    assert changed(before, now) == [
        ("block queued", '{"role":"user","content":"[context: queued]\\n1"}', ""),
        ("tail 2", "", '{"role":"user","content":"b"}'),
    ]
    assert changed(prompt(system="You are a."), prompt(system="You are b.")) == [("system", "a", "b")]


def test_a_change_in_the_middle_of_a_character_and_a_long_one_are_shown() -> None:
    ((_, removed, added),) = changed(prompt(tail=("é",)), prompt(tail=("è",)))
    assert (len(removed), len(added)) == (1, 1)
    ((_, _, added),) = changed(prompt(tail=("",)), prompt(tail=("x" * 10_000,)))
    assert added == "x" * SHOWN_BYTES + "… (10000 bytes)"


texts = st.text("ab", max_size=6)


@given(st.lists(texts, max_size=4), st.lists(texts, max_size=4), texts, texts)
def test_the_common_prefix_is_as_long_as_can_be(one: list[str], other: list[str], date: str, queued: str) -> None:
    before, now = prompt(("date", date), tail=tuple(one)), prompt(("date", queued), tail=tuple(other))
    older, newer = (b"".join(part.data for part in found.parts()) for found in (before, now))
    common = compared(before, now)["common"]
    assert older[:common] == newer[:common]
    assert older[common : common + 1] != newer[common : common + 1] or older == newer


def test_the_last_prompts_of_the_last_sessions_are_kept() -> None:
    sent = Sent()
    for number in range(KEPT):
        sent.keep(Scope(), f"ses_{number}", prompt(tail=(str(number),)))
    sent.keep(Scope(), "ses_0", prompt(tail=("again",)))
    sent.keep(Scope(), "ses_new", prompt())
    assert sent.last(Scope(), "ses_0") == prompt(tail=("again",))
    assert sent.last(Scope(), "ses_1") is None, "the one that called longest ago"
    assert sent.last(Scope(), "ses_2") == prompt(tail=("2",))
    assert sent.last(Scope(project="other"), "ses_0") is None
