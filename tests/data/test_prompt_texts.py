"""Hostile names and titles in a model's prompt: each stays a part of its own line, whatever it is made of."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import trio

from callboard import Block, Turn
from callboard.actors.session.prompt.blocks import BLOCK_CHARS, FIELD_CHARS, clean
from callboard.actors.session.prompt.directory import DIRECTORY
from callboard.actors.session.prompt.standard import CHILDREN
from callboard.storage.model.errors import InvalidField
from callboard.storage.ops.sessions import check_title
from callboard.tests.flows.chat_kit import chatting, text

LINE = re.compile("- [^\\[\\]<>{}`\x00-\x1f\x7f-\x9f\u2028\u2029\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]*")


def texts(folder: Path) -> list[str]:
    """Every string of the collection, however deep it lies."""
    found: list[str] = []
    waiting: list[Any] = [
        json.loads(file.read_text(encoding="utf-8")) for file in sorted((folder / "injection").glob("*.json"))
    ]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, dict | list):
            waiting.extend(item.values() if isinstance(item, dict) else item)
    return list(dict.fromkeys(found))


@pytest.mark.spec("CTX-2")
def test_no_text_of_the_collection_gets_out_of_its_line(data: Path) -> None:
    found = texts(data)
    assert len(found) > 1_000
    for number in range(0, len(found), 20):
        some = found[number : number + 20]
        children = CHILDREN.text({"children": [{"title": text, "agent": text, "state": text} for text in some]})
        places = DIRECTORY.text(
            {"places": [{"path": text, "agent": "a", "purpose": text} for text in some], "more": ""}
        )
        for told in (children, places):
            _, *lines = told.split("\n")
            shown = [line for line in lines if not line.endswith("…")]
            assert len(lines) <= len(some)
            assert all(LINE.fullmatch(line) for line in shown), told
        for hostile in some:
            assert len(clean(hostile)) <= FIELD_CHARS
            clean(hostile).encode()


@pytest.mark.spec("CTX-1", "CTX-2")
async def test_templates_of_the_collection_are_not_carried_out(data: Path) -> None:
    """They reach a model by way of a whole turn, as what a program's own block provides."""
    hostile = [text for text in texts(data) if "{{" in text or "{%" in text or "<" in text]
    titles: list[str] = []
    for text_of in hostile:
        try:
            titles.append(check_title(text_of[:200]))
        except InvalidField:
            continue
    assert len(titles) > 100

    async def provide(turn: Turn) -> dict[str, Any]:
        return {"texts": titles}

    own = Block("own", 1, "{% for text in texts %}\n- {{ text }}\n{% endfor %}\n", provide)
    with trio.fail_after(60):
        async with chatting(blocks=[own]) as chat:
            await chat.ask(text("ok"))
            told = chat.model.blocks(0)["own"]
    assert len(told) == BLOCK_CHARS
    assert "\n".join(f"- {clean(title)}" for title in titles).startswith(told.removesuffix("…"))
