"""How the fields of an answer read for people. Not here: asking, printing (`output`)."""

from __future__ import annotations

from .board import Json


def who(item: Json) -> str:
    """Who sent a message or wrote an entry."""
    return item["sender"]["label"] or item["sender"]["id"]


def state_of(message: Json) -> str:
    """`pending`, `delivered (answered)`, `failed (cancelled)`."""
    why = message.get("reason") or (message.get("outcome") if message["status"] == "delivered" else None)
    return f"{message['status']} ({why})" if why else message["status"]
