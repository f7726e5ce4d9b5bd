"""Dispatch: from a due mailbox to a committed turn. The pipeline: claim → load → decode → turn → commit → announce.

Not here: what an agent sees of its turn (`session`), and edges: they and the dispatcher meet in rows.
"""

from __future__ import annotations

from .dispatcher import Dispatcher

__all__ = ["Dispatcher"]
