"""Callboard: a durable actor runtime for agent sessions, built on Trio.

This is the public API. It is loaded lazily (PEP 562): importing one of the folders loads nothing of the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .actors import client as client
    from .actors.models.openai import ChatModel as ChatModel
    from .actors.models.openai import ModelLimits as ModelLimits
    from .actors.ports import Tuning as Tuning
    from .actors.session.agents.base import Agent as Agent
    from .actors.session.agents.chat import Budget as Budget
    from .actors.session.agents.chat import ChatAgent as ChatAgent
    from .actors.session.agents.scripted import Rule as Rule
    from .actors.session.agents.scripted import Scripted as Scripted
    from .actors.session.prompt.blocks import Block as Block
    from .actors.session.prompt.standard import standard_blocks as standard_blocks
    from .actors.session.steps import Interrupted as Interrupted
    from .actors.session.turn import Call as Call
    from .actors.session.turn import Tool as Tool
    from .actors.session.turn import Turn as Turn
    from .actors.session.turn import tool as tool
    from .storage.model.errors import CallboardError as CallboardError
    from .storage.model.errors import InvalidField as InvalidField
    from .storage.model.errors import LeaseLost as LeaseLost
    from .storage.model.errors import MailboxFull as MailboxFull
    from .storage.model.errors import MessageConflict as MessageConflict
    from .storage.model.errors import NotFound as NotFound
    from .storage.model.errors import NotPermitted as NotPermitted
    from .storage.model.errors import PathTaken as PathTaken
    from .storage.model.errors import RuntimeFailed as RuntimeFailed
    from .storage.model.errors import StoreError as StoreError
    from .storage.model.errors import Unavailable as Unavailable
    from .storage.model.errors import UnknownTarget as UnknownTarget
    from .storage.model.errors import UsageError as UsageError
    from .storage.model.errors import WouldDeadlock as WouldDeadlock
    from .storage.model.events import Event as Event
    from .storage.model.messages import MessageView as MessageView
    from .storage.model.messages import Receipt as Receipt
    from .storage.model.policies import Edge as Edge
    from .storage.model.sessions import Entry as Entry
    from .storage.model.sessions import Handoff as Handoff
    from .storage.model.sessions import Session as Session
    from .supervisors.portal import Portal as Portal
    from .supervisors.portal import open_portal as open_portal
    from .supervisors.runtime import Runtime as Runtime
    from .supervisors.runtime import open_runtime as open_runtime
    from .supervisors.team import Team as Team

_HOMES = {
    "Agent": "actors.session.agents.base",
    "Block": "actors.session.prompt.blocks",
    "Budget": "actors.session.agents.chat",
    "Call": "actors.session.turn",
    "CallboardError": "storage.model.errors",
    "ChatAgent": "actors.session.agents.chat",
    "ChatModel": "actors.models.openai",
    "Edge": "storage.model.policies",
    "Entry": "storage.model.sessions",
    "Event": "storage.model.events",
    "Handoff": "storage.model.sessions",
    "Interrupted": "actors.session.steps",
    "InvalidField": "storage.model.errors",
    "LeaseLost": "storage.model.errors",
    "MailboxFull": "storage.model.errors",
    "MessageConflict": "storage.model.errors",
    "MessageView": "storage.model.messages",
    "ModelLimits": "actors.models.openai",
    "NotFound": "storage.model.errors",
    "NotPermitted": "storage.model.errors",
    "PathTaken": "storage.model.errors",
    "Portal": "supervisors.portal",
    "Receipt": "storage.model.messages",
    "Rule": "actors.session.agents.scripted",
    "Runtime": "supervisors.runtime",
    "RuntimeFailed": "storage.model.errors",
    "Scripted": "actors.session.agents.scripted",
    "Session": "storage.model.sessions",
    "StoreError": "storage.model.errors",
    "Team": "supervisors.team",
    "Tool": "actors.session.turn",
    "Tuning": "actors.ports",
    "Turn": "actors.session.turn",
    "Unavailable": "storage.model.errors",
    "UnknownTarget": "storage.model.errors",
    "UsageError": "storage.model.errors",
    "WouldDeadlock": "storage.model.errors",
    "client": "actors.client",
    "open_portal": "supervisors.portal",
    "open_runtime": "supervisors.runtime",
    "standard_blocks": "actors.session.prompt.standard",
    "tool": "actors.session.turn",
}

__all__ = [
    "Agent",
    "Block",
    "Budget",
    "Call",
    "CallboardError",
    "ChatAgent",
    "ChatModel",
    "Edge",
    "Entry",
    "Event",
    "Handoff",
    "Interrupted",
    "InvalidField",
    "LeaseLost",
    "MailboxFull",
    "MessageConflict",
    "MessageView",
    "ModelLimits",
    "NotFound",
    "NotPermitted",
    "PathTaken",
    "Portal",
    "Receipt",
    "Rule",
    "Runtime",
    "RuntimeFailed",
    "Scripted",
    "Session",
    "StoreError",
    "Team",
    "Tool",
    "Tuning",
    "Turn",
    "Unavailable",
    "UnknownTarget",
    "UsageError",
    "WouldDeadlock",
    "client",
    "open_portal",
    "open_runtime",
    "standard_blocks",
    "tool",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f".{home}", __name__)
    value = module if home.endswith(f".{name}") else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
