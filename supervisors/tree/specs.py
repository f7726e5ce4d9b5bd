"""Child specifications: what a supervisor is to run, as data that is checked before anything starts.

Lives here: `ChildSpec`, and the `Child` handle that a cooperative child is given. Not here: running (`supervisor`),
deciding (`decisions`).

Invariant: a `ChildSpec` that exists is valid; a wrong one raises `SpecError` with the name of the field.
"""

import inspect as signatures
from collections.abc import Awaitable, Callable, Iterable

import attrs
import trio

from .checks import check_name, check_number, member
from .errors import SpecError
from .reports import Node
from .terms import Kind, Restart


@attrs.frozen(eq=False)
class Child:
    """What a cooperative child is given of its own life.

    `stopping` is set when the supervisor wants the child to end; the child may then finish what it does and return. When
    its grace is over, it is cancelled.
    """

    name: str
    stopping: trio.Event


def _restart(given: Restart | str) -> Restart:
    return member(Restart, given, field="restart")


def _kind(given: Kind | str) -> Kind:
    return member(Kind, given, field="kind")


@attrs.frozen
class ChildSpec:
    """One child of a supervisor. Start order is list order; stop order is the reverse.

    `start` is an async callable; the child lives as long as its call. It is called without arguments, except

    - `task_status=` if it has a parameter of that name: then the child counts as started, and the next one is started,
      when it calls `task_status.started()`. Without it, a child counts as started at its first step.
    - `child=` (a `Child`) if `cooperative`: then it is asked to stop through `child.stopping`, and cancelled when
      `grace_seconds` are over. A child that is not cooperative can't be asked: it is cancelled at once, and
      `grace_seconds` is its time to clean up.

    `grace_seconds` 0 is a brutal stop: cancelled at once, cooperative or not. `math.inf` is for supervisors only.
    `inspect` gives the subtree of a child that is itself a supervisor. Restart and kind may be given by name.

    Raises `SpecError`.
    """

    name: str
    start: Callable[..., Awaitable[object]]
    restart: Restart = attrs.field(default=Restart.PERMANENT, converter=_restart)
    grace_seconds: float = 5.0
    kind: Kind = attrs.field(default=Kind.WORKER, converter=_kind)
    cooperative: bool = attrs.field(default=False, kw_only=True)
    inspect: Callable[[], Node] | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_name(self.name)
        endless = self.kind is Kind.SUPERVISOR
        check_number("grace_seconds", self.grace_seconds, owner=self.name, infinite=endless)
        self._check_start()

    @property
    def reports_start(self) -> bool:
        """Whether `start` takes a `task_status`."""
        signature = _signature(self.start)
        return signature is not None and "task_status" in signature.parameters

    def _check_start(self) -> None:
        if not callable(self.start):
            raise SpecError("start", f"not callable: {self.start!r}", owner=self.name)
        signature = _signature(self.start)
        if signature is None:
            return
        # Found out now, by name, instead of as a TypeError in a task, which would count as a failed start.
        given = {"child": None} if self.cooperative else {}
        try:
            signature.bind(**given, **({"task_status": None} if self.reports_start else {}))
        except TypeError as error:
            wanted = "child=" if self.cooperative else "no arguments"
            raise SpecError("start", f"can't be called with {wanted}: {error}", owner=self.name) from None


def check_children(children: Iterable[ChildSpec], *, owner: str) -> tuple[ChildSpec, ...]:
    """The children as a tuple; raises `SpecError` if one is no `ChildSpec` or two have one name."""
    specs = tuple(children)
    seen: set[str] = set()
    for spec in specs:
        if not isinstance(spec, ChildSpec):
            raise SpecError("children", f"not a ChildSpec: {spec!r}", owner=owner)
        if spec.name in seen:
            raise SpecError("children", f"two children are named {spec.name!r}", owner=owner)
        seen.add(spec.name)
    return specs


def _signature(start: Callable[..., object]) -> signatures.Signature | None:
    # Some callables written in C have no signature; they are called without arguments and fail by name if that is wrong.
    try:
        return signatures.signature(start)
    except (TypeError, ValueError):
        return None
