"""A client that outlives its connections: `from callboard import client`, then `async with client.connect(url, token) as board`.

`client.open_front(url, token)` is a whole place for one person at a server: one open session that follows handoffs, for a terminal or a voice.

Lives here: following sessions by cursor, sending under a message id of its own, what a reader of a stream should be shown, when a handoff is
followed. Not here: anything of the server; this folder needs only the model and the wire format.
"""

from __future__ import annotations

from .conversation import Conversation, Show, ShowKind
from .front import Front, open_front
from .handoffs import Decision, Handoff, LastResult, Rules, Verdict, Why
from .live import Accepted, LiveClient, Navigated, connect
from .memory import FileMemory, InMemory, Kept, Remembered
from .notices import By, Ended, Notice, Offered, Opened, Refused, Said
from .rest import Place
from .subscription import LiveEvent, Subscription

__all__ = [
    "Accepted",
    "By",
    "Conversation",
    "Decision",
    "Ended",
    "FileMemory",
    "Front",
    "Handoff",
    "InMemory",
    "Kept",
    "LastResult",
    "LiveClient",
    "LiveEvent",
    "Navigated",
    "Notice",
    "Offered",
    "Opened",
    "Place",
    "Refused",
    "Remembered",
    "Rules",
    "Said",
    "Show",
    "ShowKind",
    "Subscription",
    "Verdict",
    "Why",
    "connect",
    "open_front",
]
