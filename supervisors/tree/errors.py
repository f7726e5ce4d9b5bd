"""The errors of a supervision tree.

Lives here: one class per fault, with its facts as attributes. Not here: who raises them, and what a child raises (that
is kept as the `__cause__`).

Who must act: `SpecError` the programmer, before anything runs; `AlreadyRunning`, `TooManyChildren` and `NotRunning` the
caller of one `start`; `StartFailed` and `IntensityExceeded` whoever stands above the supervisor.
"""


class TreeError(Exception):
    """Root of every error of this package; never raised itself."""


class SpecError(TreeError, ValueError):
    """A specification is wrong; nothing has been started.

    `field` is the argument at fault, `owner` the child, supervisor or class it was meant for ("" if not yet known).
    """

    def __init__(self, field: str, problem: str, *, owner: str = "") -> None:
        super().__init__(f"{owner}.{field}: {problem}" if owner else f"{field}: {problem}")
        self.field = field
        self.problem = problem
        self.owner = owner


class StartFailed(TreeError):
    """A child failed in its first start; those before it have been stopped. The cause is what the child raised."""

    def __init__(self, supervisor: str, child: str, why: str) -> None:
        super().__init__(f"{supervisor}: child {child!r} failed to start: {why}")
        self.supervisor = supervisor
        self.child = child


class IntensityExceeded(TreeError):
    """A child needed a restart more often than allowed; all children have been stopped.

    The cause is what the child raised last, or None if a permanent child simply returned.
    """

    def __init__(self, supervisor: str, child: str, *, restarts: int, period_seconds: float, why: str) -> None:
        super().__init__(
            f"{supervisor}: child {child!r} needed more than {restarts} restarts in {period_seconds:g} s: {why}"
        )
        self.supervisor = supervisor
        self.child = child
        self.restarts = restarts
        self.period_seconds = period_seconds


class AlreadyRunning(TreeError):
    """The name belongs to a child that has not ended yet (or the supervisor is run a second time at once)."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} is already running")
        self.name = name


class TooManyChildren(TreeError):
    """A dynamic supervisor is full; the child was not started."""

    def __init__(self, supervisor: str, limit: int) -> None:
        super().__init__(f"{supervisor}: already has {limit} children")
        self.supervisor = supervisor
        self.limit = limit


class NotRunning(TreeError):
    """A supervisor does not run yet, or stops: the child was not started, the block around the tree not entered."""

    def __init__(self, supervisor: str) -> None:
        super().__init__(f"{supervisor}: is not running")
        self.supervisor = supervisor


def reason_of(error: BaseException | None) -> str:
    """One line for people: what the child raised, or that it returned."""
    if error is None:
        return "it returned"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
