"""Asking the providers of blocks before a model's call, all at the same time, under one limit.

Lives here: the limit, what becomes of a provider that fails or is late. Not here: blocks and their templates (`blocks`).

Invariant: a block that can't be made is left out and the turn goes on; what ends the attempt ends it as itself, never inside a group.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, cast

import trio

from ..steps import PASSING
from .blocks import Block, Rendered
from .preview import PreviewTurn
from .recent import Recent

if TYPE_CHECKING:
    from ....storage.model.addresses import Scope
    from ..turn import Turn

log: Final = logging.getLogger("callboard.prompt")
PROVIDE_SECONDS: Final = 5.0
"""A model's call must not wait longer for what it can do without."""
LATE_MOST: Final = 256
_late: Final = Recent[tuple["Scope", str], set[str]](LATE_MOST)
"""The blocks that were late, by turn, of the last `LATE_MOST` turns that had one: each round would wait for them again."""


async def rendered(turn: Turn, blocks: Iterable[Block]) -> tuple[Rendered, ...]:
    """The blocks that have something to say now, in the order given. One that was late in this turn is not asked again.

    Raises only what ends the attempt or the process: a lost lease, a store that is down, Ctrl-C.
    """
    late = _late_in(turn)
    asked = [block for block in blocks if block.name not in late]
    texts: dict[str, str] = {}
    failed: list[BaseException] = []
    with trio.move_on_after(PROVIDE_SECONDS) as limit:
        async with trio.open_nursery() as nursery:

            async def ask(block: Block) -> None:
                try:
                    data = await block.provide(turn)
                    texts[block.name] = block.text(data) if data else ""
                except BaseException as error:
                    cancelled, own = _apart(error)
                    if own is not None and _passes(own):
                        failed.append(own)
                        nursery.cancel_scope.cancel()
                    elif own is not None and not limit.cancel_called:
                        # Its text may quote the data.
                        _left_out(turn, block.name, type(own).__name__)
                        texts[block.name] = ""
                    if cancelled is not None:
                        raise cancelled from None

            for block in asked:
                nursery.start_soon(ask, block, name=f"block {block.name}")
    if failed:
        raise failed[0]
    too_late = [block.name for block in asked if block.name not in texts]
    for name in too_late:
        _left_out(turn, name, f"it took longer than {PROVIDE_SECONDS:g} s")
    if too_late:
        _keep(turn, late.union(too_late))
    return tuple(Rendered(block.name, texts[block.name]) for block in asked if texts.get(block.name))


def _left_out(turn: Turn, name: str, why: str) -> None:
    log.warning("the context block %s of %s is left out: %s", name, turn.session.id, why)


def _late_in(turn: Turn) -> set[str]:
    known = _late.get((turn.scope, turn.id)) or set[str]()
    return known | turn.late if isinstance(turn, PreviewTurn) else known


def _keep(turn: Turn, late: set[str]) -> None:
    if isinstance(turn, PreviewTurn):
        turn.late = late  # looking changes nothing for the turn itself
        return
    _late.put((turn.scope, turn.id), late)


def _apart(error: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """What of it is a cancel, which goes on to its scope, and what is the provider's own."""
    if isinstance(error, trio.Cancelled):
        return error, None
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).split(trio.Cancelled)
    return None, error


def _passes(error: BaseException) -> bool:
    """Whether it is about the attempt or the process and not about the block, alone or out of a nursery.

    Of what is no `Exception` that is Ctrl-C alone: a provider that calls `sys.exit` has failed, and who only looks must not end with it.
    """
    if isinstance(error, BaseExceptionGroup):
        return any(map(_passes, cast("BaseExceptionGroup[BaseException]", error).exceptions))
    return isinstance(error, (*PASSING, KeyboardInterrupt))
