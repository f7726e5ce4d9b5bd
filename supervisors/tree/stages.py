"""A task that keeps no frame of its own while what it runs waits.

Lives here: the first and the last step of such a child, and the coroutine that Trio sees. Not here: starting and stopping
it (`dynamic`).

A coroutine around another one that waits is a quarter of a kilobyte, the outermost one of a task almost half of one, and
a program may have thousands of tasks that wait. So the outermost one is no `async def` here but `StagedLife`, which hands
the task's steps straight to what it runs.

Invariant: `over` is called once, and is the last thing that the task does.
"""

import sys
from collections.abc import Awaitable, Callable, Generator
from types import CodeType, CoroutineType, FrameType
from typing import Any, Protocol, Self, cast

import attrs
import trio

from .lives import TemporaryLife


class Staged(Protocol):
    """Something to do that has a beginning and an end of its own. Carried out it is

        try:
            result, error = await staged.begin(), None
        except BaseException as failure:
            result, error = None, failure
        await staged.end(result, error)

    but without that frame. `scope` is what stops it; it enters and leaves that itself, around all that may take long.
    """

    @property
    def scope(self) -> trio.CancelScope: ...

    def begin(self) -> Awaitable[object]:
        """What is to be awaited. Called in the task, as its first step."""
        ...

    async def end(self, result: object, error: BaseException | None, /) -> None:
        """Called however that went. What it raises is the child's failure."""
        ...


@attrs.define(eq=False, weakref_slot=False)
class StagedLife(TemporaryLife):
    """The life of a staged child, and the coroutine of its task.

    Trio takes any object that has the methods and attributes of a coroutine, as Cython's have them. Here the attributes are
    those of what runs: whoever looks at the task sees what it really waits for.
    """

    staged: Staged
    over: Callable[[TemporaryLife, BaseException | None], None]
    """Told of the end and of what it raised; what it raises itself is what the task ends with."""
    _ending: bool = attrs.field(default=False, init=False)
    _now: "CoroutineType[Any, Any, object] | None" = attrs.field(default=None, init=False)

    @property
    def scope(self) -> trio.CancelScope:
        return self.staged.scope

    def run(self) -> Self:
        """What the nursery is to start."""
        return self

    def send(self, value: Any) -> Any:
        return self._step(self._begin if self._now is None else self._now.send, value)

    def throw(self, error: BaseException, /) -> Any:
        if self._now is None:
            raise error
        return self._step(self._now.throw, error)

    def close(self) -> None:
        if self._now is not None:
            self._now.close()

    def __await__(self) -> Generator[Any, Any, None]:
        # A coroutine has this too, or Trio would not take it for one.
        return cast("Generator[Any, Any, None]", self)

    def __next__(self) -> Any:
        return self.send(None)

    def _begin(self, value: object) -> Any:
        work = self.staged.begin()
        self._now = work if isinstance(work, CoroutineType) else _waiting_for(work)
        return self._now.send(value)

    def _step(self, resume: Callable[[Any], Any], given: Any) -> Any:
        """Go on until it waits for something. Its end is `StopIteration`, as of any coroutine."""
        result: object = None
        failure: BaseException | None = None
        try:
            return resume(given)
        except StopIteration as end:
            result = end.value
        except BaseException as error:
            failure = error
        try:
            if self._ending:
                self.over(self, failure)
                raise StopIteration
            self._ending = True
            self._now = self.staged.end(result, failure)
        finally:
            # Its traceback holds this frame: each would keep the other until the garbage collector comes.
            del failure
        return self._step(self._now.send, None)

    @property
    def cr_frame(self) -> FrameType | None:
        # There is none before the first step, but a coroutine without one is wrapped by Trio.
        return sys._getframe() if self._now is None else self._now.cr_frame  # noqa: SLF001

    @property
    def cr_code(self) -> CodeType | None:
        return None if self._now is None else self._now.cr_code

    @property
    def cr_await(self) -> object:
        return None if self._now is None else self._now.cr_await

    @property
    def cr_running(self) -> bool:
        return self._now is not None and self._now.cr_running

    @property
    def cr_suspended(self) -> bool:
        return self._now is not None and self._now.cr_suspended


async def _waiting_for(work: Any) -> object:
    """A coroutine of Python's own for any other awaitable, which has not the attributes that Trio asks for."""
    return await work
