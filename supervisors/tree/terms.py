"""The vocabulary of supervision, in the words of OTP.

Lives here: closed sets of names, each with its meaning. Not here: what follows from them (`decisions`), and how it is
carried out (`supervisor`).
"""

import enum


class Restart(enum.StrEnum):
    """When a child that ended is started again."""

    PERMANENT = "permanent"
    """Always: also when it returned."""

    TRANSIENT = "transient"
    """Only after an abnormal exit. One that returned stays listed, and starts again only with its group."""

    TEMPORARY = "temporary"
    """Never, not even with its group. It leaves the list when it ends."""


class Strategy(enum.StrEnum):
    """Whom a restart reaches."""

    ONE_FOR_ONE = "one_for_one"
    """The child that ended."""

    ONE_FOR_ALL = "one_for_all"
    """Every child: the others are stopped first."""

    REST_FOR_ONE = "rest_for_one"
    """The child that ended and those that start after it, which are stopped first."""


class Kind(enum.StrEnum):
    """What a child is; only a supervisor may have an endless grace, as its own children bound it."""

    WORKER = "worker"
    SUPERVISOR = "supervisor"


class Exit(enum.StrEnum):
    """How a child ended."""

    NORMAL = "normal"
    """It returned, unasked."""

    SHUTDOWN = "shutdown"
    """It ended after its supervisor had asked it to, by whatever way: returned, cancelled, or raised while stopping."""

    ABNORMAL = "abnormal"
    """It raised an `Exception` unasked, or it ended before it had reported its start."""


class State(enum.StrEnum):
    """Where a child or a supervisor is in its life."""

    STARTING = "starting"
    """In: it was given a task. Out: it runs (`started()`, or its first step), fails, or is stopped."""

    RUNNING = "running"
    """In: it has started. Out: it ends, or is asked to stop."""

    BACKING_OFF = "backing-off"
    """In: it ended and will be started again. Out: the delay is over, or the supervisor stops."""

    STOPPING = "stopping"
    """In: it was asked to stop. Out: it ends, or it outlives its cancel."""

    STUCK = "stuck"
    """In: it outlived its cancel by the supervisor's `stuck_seconds`. Out: only by ending at last."""

    STOPPED = "stopped"
    """Not running and not about to: not yet run, returned, or stopped."""

    FAILED = "failed"
    """Not running, and the reason why its supervisor gave up (or a supervisor that gave up)."""
