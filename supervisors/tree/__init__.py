"""Supervision trees in the manner of OTP, on plain Trio.

Usable alone: this package imports nothing else of ours. A `Supervisor` keeps a fixed list of children alive, a
`DynamicSupervisor` holds children that come and go, `open_tree` runs a root around a block. The rules are pure and public:
`decide`, `Window`, `Backoff`.
"""

from .decisions import Action, Decision, Sibling, decide, needs_restart
from .dynamic import DynamicSupervisor
from .errors import (
    AlreadyRunning,
    IntensityExceeded,
    NotRunning,
    SpecError,
    StartFailed,
    TooManyChildren,
    TreeError,
)
from .intensity import Backoff, Intensity, Window
from .reports import Escalated, Exited, Node, Observer, Restarting, Started, Stopping, Stuck, TreeEvent
from .root import open_tree
from .specs import Child, ChildSpec
from .supervisor import Supervisor
from .terms import Exit, Kind, Restart, State, Strategy

__all__ = [
    "Action",
    "AlreadyRunning",
    "Backoff",
    "Child",
    "ChildSpec",
    "Decision",
    "DynamicSupervisor",
    "Escalated",
    "Exit",
    "Exited",
    "Intensity",
    "IntensityExceeded",
    "Kind",
    "Node",
    "NotRunning",
    "Observer",
    "Restart",
    "Restarting",
    "Sibling",
    "SpecError",
    "StartFailed",
    "Started",
    "State",
    "Stopping",
    "Strategy",
    "Stuck",
    "Supervisor",
    "TooManyChildren",
    "TreeError",
    "TreeEvent",
    "Window",
    "decide",
    "needs_restart",
    "open_tree",
]
