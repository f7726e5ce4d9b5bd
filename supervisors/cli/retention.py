"""`callboard inbox prune`. Not here: what is pruned, and when a running server does it by itself (`message_keep_days`)."""

from __future__ import annotations

import re
from typing import Final

from ...storage.model.errors import SettingsError
from .arguments import Asked
from .asking import ask, wants_json
from .board import Found, Json
from .output import as_json, line

_AGE: Final = re.compile(r"([0-9]{1,9})([smhdw])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def inbox_prune_command(older_than: str, project: str | None, asked: Asked) -> int:
    """Take the bodies of old messages, however many there are, and tell how many."""
    keep = seconds_in(older_than)

    async def question(found: Found) -> Json:
        total = {"blanked": 0, "deleted": 0}
        more = True
        while more:
            answer = await found.board.prune(keep, project)
            total = {name: total[name] + answer[name] for name in total}
            more = answer["more"]
        return total

    answer = ask(asked, question)
    if wants_json(asked):
        as_json(answer)
    else:
        line(f"bodies forgotten: {answer['blanked']}, rows deleted: {answer['deleted']}; transcripts are as they were")
    return 0


def seconds_in(age: str) -> float:
    """`30d` as seconds. Raises `SettingsError`, which counts as wrong use."""
    match = _AGE.fullmatch(age)
    if match is None:
        raise SettingsError("must be a number and one of s, m, h, d, w, such as 30d", path="--older-than")
    return float(int(match[1]) * _SECONDS[match[2]])
