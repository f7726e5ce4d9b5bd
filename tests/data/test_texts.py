"""Real and hostile texts go through the whole pipeline unharmed, or are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

import callboard
from callboard.storage.model.addresses import check_path, clean_label
from callboard.storage.model.errors import InvalidField


async def echo(turn: callboard.Turn) -> str:
    return turn.text


def strings(folder: Path, name: str, key: str | None) -> list[str]:
    found: list[Any] = json.loads((folder / "injection" / name).read_text(encoding="utf-8"))["strings"]
    return [item[key] if key else item for item in found]


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@pytest.mark.spec("INB-5", "MSG-1")
async def test_naughty_strings_are_stored_as_they_are_or_refused_naming_the_field(data: Path, tmp_path: Path) -> None:
    texts = [
        *strings(data, "naughty-strings.json", "s"),
        *strings(data, "callboard-strings.json", "s"),
        *strings(data, "markup-injection.json", None),
        *strings(data, "crlf-injection.json", None),
    ]
    kept: list[str] = []
    refused: dict[str, str | None] = {}
    async with callboard.open_runtime(f"sqlite:///{tmp_path}/s.db", agents={"echo": echo}) as runtime:
        session = await runtime.open_session(agent="echo", path="/")
        for text in texts:
            try:
                await runtime.send(session.id, text)
            except InvalidField as error:
                refused[text] = error.path
            else:
                kept.append(text)
        last = (await runtime.store.reads.inbox(runtime.scope, limit=1)).items[0]
        with trio.fail_after(60):
            await runtime.wait(last.id)
        entries: list[Any] = []
        while page := await runtime.read(session.id, after=entries[-1].seq if entries else 0):
            entries.extend(page)
    assert len(kept) > 500
    assert refused
    assert set(refused.values()) == {"content"}
    assert all(not text.strip() or "\0" in text or len(text) > 20_000 or not _encodes(text) for text in refused)
    assert [entry.content for entry in entries if entry.role == "user"] == kept
    assert [entry.content for entry in entries if entry.role == "assistant"] == kept


@pytest.mark.spec("NS-1")
def test_hostile_paths_are_refused_with_a_reason(data: Path) -> None:
    hostile = [*strings(data, "path-traversal.json", None), *strings(data, "crlf-injection.json", None)]
    for text in hostile:
        with pytest.raises(InvalidField) as caught:
            check_path(text)
        assert caught.value.path == "path"
        assert len(str(caught.value)) < 600


@pytest.mark.spec("SES-9")
def test_no_text_breaks_out_of_a_label(data: Path) -> None:
    for name in ("naughty-strings.json", "callboard-strings.json"):
        for text in strings(data, name, "s"):
            label = clean_label(text)
            assert len(label) <= 80
            assert label.isprintable() or not label
            assert "[" not in label
            assert "]" not in label


@pytest.mark.spec("MSG-1", "INB-6")
async def test_a_real_chat_keeps_its_order_in_every_channel(data: Path, tmp_path: Path) -> None:
    logs = sorted((data / "chat").glob("irc-*.jsonl"))[:6]
    assert len(logs) == 6
    texts_of = {log: log.read_text(encoding="utf-8").splitlines() for log in logs}
    said: dict[str, list[str]] = {}
    async with callboard.open_runtime(f"sqlite:///{tmp_path}/c.db", agents={"echo": echo}) as runtime:

        async def play(log: Path) -> None:
            session = await runtime.open_session(agent="echo", title=log.stem)
            lines = [json.loads(line) for line in texts_of[log][:150]]
            texts = [line["text"] for line in lines if line.get("text", "").strip()]
            said[session.id] = texts
            receipt = None
            for text in texts:
                receipt = await runtime.send(session.id, text)
            assert receipt is not None
            await runtime.wait(receipt.id)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for log in logs:
                    nursery.start_soon(play, log)
        for session, texts in said.items():
            entries: list[Any] = []
            while page := await runtime.read(session, after=entries[-1].seq if entries else 0):
                entries.extend(page)
            assert [entry.seq for entry in entries] == list(range(1, 2 * len(texts) + 1))
            assert [entry.content for entry in entries if entry.role == "user"] == texts
            assert [entry.content for entry in entries if entry.role == "assistant"] == texts
