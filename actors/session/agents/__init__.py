"""Agents: the behaviour that runs a session's turns. Any object with an async or plain `run`, or a function `(turn) -> str | None`."""

from __future__ import annotations

from .base import Agent, Behaviour, as_agent
from .scripted import Rule, Scripted

__all__ = ["Agent", "Behaviour", "Rule", "Scripted", "as_agent"]
