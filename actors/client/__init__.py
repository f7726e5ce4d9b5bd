"""A client that outlives its connections: `from callboard import client`, then `async with client.connect(url, token) as board`.

Lives here: following sessions by cursor, sending under a message id of its own, what a reader of a stream should be shown. Not here:
anything of the server; this folder needs only the model and the wire format.
"""

from __future__ import annotations

from .conversation import Conversation, Show, ShowKind
from .live import Accepted, LiveClient, connect
from .subscription import LiveEvent, Subscription

__all__ = ["Accepted", "Conversation", "LiveClient", "LiveEvent", "Show", "ShowKind", "Subscription", "connect"]
