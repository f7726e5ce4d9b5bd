"""The parser of server-sent events against the table of streams that the project keeps outside the repository.

Skipped without `CALLBOARD_TEST_DATA`, the folder that has `streams/`. A case that is unknown here is judged like any other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from callboard.actors.models.sse import EventParser


def cases(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "streams" / "sse.json").read_text(encoding="utf-8"))["cases"]
    assert len(found) > 20
    return found


def parsed(chunks: list[bytes]) -> dict[str, Any]:
    parser = EventParser()
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return {
        "events": [{"type": e.type, "data": e.data, "lastEventId": e.last_event_id} for e in events],
        "final_last_event_id": parser.last_event_id,
        "reconnection_time_ms": parser.retry_ms,
    }


@pytest.mark.parametrize("cut", ["as given", "whole", "byte by byte"])
def test_every_stream_of_the_table_gives_its_events(data: Path, cut: str) -> None:
    for case in cases(data):
        chunks = [bytes.fromhex(chunk) for chunk in case["chunks_hex"]]
        if cut != "as given":
            text = b"".join(chunks)
            chunks = [text] if cut == "whole" else [text[n : n + 1] for n in range(len(text))]
        expected = {name: case[name] for name in ("events", "final_last_event_id", "reconnection_time_ms")}
        assert parsed(chunks) == expected, case["id"]
