"""One delivery: a claimed mailbox, its turn in a lease scope, one end. It is the session's actor while the session has work.

The pipeline: load → decode → turn → commit. Decoding is inside, so a poison row is a failed message and never a dead dispatcher (RT-12).

Invariant: nothing runs under `scope` after the lease's trusted-until on the local monotonic clock, counted from before the request that
took or renewed it (RT-7); and exactly one ending op is sent for an epoch.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, cast

import attrs
import trio

from ...storage.model.errors import Busy, OutcomeUnknown, StoreDown, StoreFull, StoreReadOnly, Unavailable
from ...storage.model.ids import turn_id
from ...storage.model.limits import ERROR_CHARS, MAX_TAKEOVERS
from ...storage.model.states import Outcome, Reason
from ...storage.model.turns import Claimed, Step, StopRequest, TurnMessage
from ...storage.ops import CommitTurn, Fail, HandBack, Retry
from ...storage.ops.deliveries import End
from ..desk import RUNNER, Desk
from ..ports import TurnEnd, TurnFacts
from ..session.agents.base import Runs
from ..session.tokens import Pulse
from ..session.turn import Turn
from .decode import fault_of
from .leftovers import close_left_open
from .settlement import Ending, clear_stuck, settle_end
from .verdict import Verdict, backoff, judge

log: Final = logging.getLogger("callboard.delivery")
_TROUBLE: Final = (Busy, OutcomeUnknown, StoreDown, StoreFull, StoreReadOnly)


@attrs.frozen
class Floor:
    """What all deliveries of a process share."""

    desk: Desk
    agents: Mapping[str, Runs]
    pulse: Pulse
    holder: str
    gone: Callable[[Delivery], None]
    """Told of each whose task is about to end."""


class Delivery:
    """The actor of one session for one claim. `trusted_until` and `began` are on Trio's clock; `ended` says that its end was decided."""

    __slots__ = (
        "_began", "_cut_at", "_expires", "_floor", "_shutdown", "_stop", "_trusted", "_turn", "_unfit", "_unread", "_watch",
        "claimed", "ended", "in_agent", "scope", "stuck",
    )  # fmt: skip

    def __init__(self, claimed: Claimed, floor: Floor, trusted_until: float, began: float) -> None:
        self.claimed = claimed
        self.ended = False
        self.stuck = False
        self.in_agent = False
        self._floor = floor
        self._trusted = trusted_until
        self._stop: StopRequest | None = claimed.stop
        self._shutdown = False
        self._cut_at = math.inf
        """When the grace of a stop or of the shutdown is over."""
        self._expires = math.inf
        if claimed.deadline is not None:
            self._expires = trio.current_time() + claimed.deadline - floor.desk.store.now()
        self._turn: Turn | None = None
        self._unread: tuple[str, ...] = ()
        self._unfit: Fail | None = None
        self._began = began
        self._watch = floor.desk.meter.turn(_facts(claimed))
        self.scope = trio.CancelScope(deadline=min(self._trusted, self._expires))

    @property
    def address(self) -> str:
        """The mailbox's address, which is the name of this actor."""
        return self.claimed.lease.recipient

    # -- what the keeper and the dispatcher tell it --------------------------------------------------------------------

    def trust(self, until: float) -> None:
        """The lease was renewed. One that had run out stays lost: its agent was cut off, and what it leaves is no result."""
        if self.trusted:
            self._trusted = until
            self._retime()

    def lose(self) -> None:
        """The lease is gone: end without a word."""
        self._trusted = trio.current_time()
        self._retime()

    def stop(self, request: StopRequest) -> None:
        """A stop is stored for this turn: the agent sees it now, and is cancelled when its grace is over."""
        if self._stop is None:
            self._stop = request
            self._ask(request.grace)

    def shut_down(self, grace: float) -> None:
        """The process ends: same grace, then the message goes back."""
        self._shutdown = True
        self._ask(grace)

    @property
    def trusted_until(self) -> float:
        """Until when the lease may be relied on, on Trio's clock."""
        return self._trusted

    @property
    def trusted(self) -> bool:
        """Whether the lease may still be relied on."""
        return trio.current_time() < self._trusted

    @property
    def overdue(self) -> float:
        """Seconds since the agent's scope was cancelled without its end; 0 if it was not."""
        return max(0.0, trio.current_time() - self.scope.deadline) if not self.ended else 0.0

    def _ask(self, grace: float) -> None:
        self._cut_at = min(self._cut_at, trio.current_time() + grace)
        if self._turn is not None:
            self._turn.ask_to_stop()
        self._retime()

    def _retime(self) -> None:
        self.scope.deadline = min(self._trusted, self._cut_at, self._expires)

    # -- the pipeline --------------------------------------------------------------------------------------------------

    # In two steps, for `SpawnStaged`: a coroutine around the agent's would be a tenth of what a live turn takes.

    def begin(self) -> Awaitable[object]:
        """The run of the agent, or what comes to the result without one."""
        # Left in `end`, which comes whatever happens here.
        self.scope.__enter__()
        self._unfit = self._fault()
        if self._unfit is not None:
            return _nothing()
        if self._stop is not None or self.claimed.steps:
            return self._again()
        return self._agent(())

    async def _again(self) -> object:
        """What an earlier attempt has left: its answer, or the steps to go on from."""
        claimed, reads = self.claimed, self._floor.desk.store.reads
        committed = await reads.steps(claimed.scope, claimed.head.id) if claimed.steps else ()
        if self._stop is not None:
            # Stopped by an earlier holder: nothing runs again, what it had streamed is the answer (RT-4).
            texts = await reads.tokens(claimed.scope, claimed.session, turn_id(claimed.head.id))
            return texts.get(max(texts, default=0))
        if claimed.steps:
            has_committed = getattr(self._floor.agents[claimed.agent], "has_committed", None)
            if has_committed is not None and await has_committed(claimed.head.message_id):
                return None
        return await self._agent(committed)

    def _agent(self, committed: Iterable[Step]) -> Awaitable[object]:
        """The run of the agent, whose task this is from now on."""
        self._turn = turn = Turn(self.claimed, self._floor.desk, self._floor.pulse, committed)
        if self._shutdown or self._stop is not None:
            turn.ask_to_stop()
        RUNNER.set(self)
        self.in_agent = True
        return self._watch.running(self._floor.agents[self.claimed.agent].run(turn))

    async def end(self, result: object, error: BaseException | None, /) -> None:
        """Bring the turn to its one end. Raises nothing but what cancels it from outside, after it has given the lease back."""
        self.in_agent = False
        try:
            if trio.lowlevel.current_task().child_nurseries:
                try:
                    await close_left_open()
                except BaseException as left:
                    error = left
            failure = self._out_of_scope(error)
            # Whatever an agent raises is its failure, SystemExit too, and what it raises while it is being cancelled.
            if failure is not None and _from_outside(failure):
                raise failure
            ending = self._unfit or self._judged(result, failure)
            if self.ended:
                # It was given up as stuck while its agent would not end; now it has, and the session may run here again.
                await clear_stuck(self._floor.desk.store, self.claimed.lease.mailbox, self._floor.holder)
            elif ending is not None:
                await self.settle(ending)
            else:
                self._tell("lost")
        except BaseException:
            if not self.ended and self.trusted:
                await self.settle(HandBack(self.claimed.lease, "cancelled"))
            raise
        finally:
            self._floor.gone(self)

    def _out_of_scope(self, error: BaseException | None) -> BaseException | None:
        """Leave the scope that `begin` has entered, as `with` would; what `error` has become."""
        try:
            caught = self.scope.__exit__(None if error is None else type(error), error, None)
        except BaseException as instead:
            return instead
        return None if caught else error

    async def give_up(self) -> None:
        """The agent survived its cancel (RT-6): end the turn without it and mark the session stuck."""
        ending = self._judged(None, RuntimeError("the agent did not end after it was cancelled"))
        if isinstance(ending, CommitTurn):
            ending = attrs.evolve(ending, stuck=self._floor.holder)
        self.stuck = True
        log.error("stuck: %s survived its cancel; it runs nothing more here until that task ends", self.address)
        if ending is None:
            self.ended = True
            self._tell("lost")
        else:
            await self.settle(ending)

    async def settle(self, ending: Ending) -> None:
        """Send the one end. Nothing else is written at this epoch but the step that tells of an unknown outcome."""
        self.ended = True
        if self._turn is not None:
            self._turn.end()
        written = await settle_end(self._floor.desk.store, self.claimed, ending, lambda: self.trusted)
        if written is None:
            self._tell("unknown")
        elif isinstance(ending, CommitTurn) and written.end is End.COMMITTED:
            self._tell(ending.outcome, written.seq)
        else:
            self._tell(written.end)

    def _tell(self, end: str, seq: int | None = None) -> None:
        """The one line about this attempt, and whoever watches it."""
        claimed, seconds = self.claimed, trio.current_time() - self._began
        if log.isEnabledFor(logging.INFO):
            shown = {
                "session": claimed.session,
                "message_id": claimed.head.message_id,
                "attempt": claimed.lease.attempt,
                "outcome": str(end),
                "seconds": round(seconds, 4),
            }
            log.info("a turn ended: %s", end, extra=shown)
        self._watch.ended(TurnEnd(str(end), seconds, seq))

    def _fault(self) -> Fail | None:
        """Why the head can't be given to any agent. What only came along must not fail it: the turn goes on without that."""
        claimed = self.claimed
        if claimed.takeovers >= MAX_TAKEOVERS:
            return Fail(claimed.lease, Reason.TAKEOVERS_USED, f"{claimed.takeovers} workers lost it")
        fault = fault_of(claimed.head)
        if fault is not None:
            return Fail(claimed.lease, Reason.UNDECODABLE, fault)
        self._unread = tuple(message.id for message in claimed.carried if fault_of(message) is not None)
        if self._unread:
            sound = tuple(message for message in claimed.carried if message.id not in self._unread)
            self.claimed = attrs.evolve(claimed, carried=sound)
        return None

    # -- judging -------------------------------------------------------------------------------------------------------

    def _judged(self, result: object, failure: BaseException | None) -> Ending | None:
        try:
            return self._judge(result, failure)
        except Exception as error:
            # What an agent hands over may break at a touch: its failure, or its message would come back for ever.
            log.exception("the end of %s can't be judged", self.address)
            claimed, said = self.claimed, f"unusable result: {type(error).__name__}"
            return Retry(claimed.lease, said, backoff(claimed.attempts + 1))

    def _judge(self, result: object, failure: BaseException | None) -> Ending | None:
        if failure is None and result is not None and not isinstance(result, str):
            failure = TypeError(f"an agent returns text or None, not {type(result).__name__}")
        text = result if isinstance(result, str) else ""
        claimed, expired = self.claimed, trio.current_time() >= self._expires
        verdict = judge(
            lost=not self.trusted,
            stop=self._stop is not None,
            # Cancelled for none of our reasons: the turn was cut off and has no result.
            shutdown=self._shutdown or (self.scope.cancelled_caught and not expired),
            expired=expired,
            failed=failure is not None,
        )
        match verdict:
            case Verdict.LOST:
                return None
            case Verdict.HAND_BACK:
                return HandBack(claimed.lease, "shutdown" if self._shutdown else "cancelled")
            case Verdict.EXPIRED:
                return Fail(claimed.lease, Reason.EXPIRED, "its time limit has passed")
            case Verdict.RETRY:
                for leaf in _leaves(failure):
                    # Our store's trouble is not the agent's: counted, a full disk would fail every message in a minute. The same
                    # error from anywhere else is the agent's own.
                    if isinstance(leaf, _TROUBLE) and leaf.store is self._floor.desk.store:
                        return HandBack(claimed.lease, leaf.code, delay=Unavailable.retry_after)
                log.warning("attempt %d of %s failed: %s", claimed.lease.attempt, self.address, type(failure).__name__)
                return Retry(claimed.lease, _say(failure), backoff(claimed.attempts + 1))
            case Verdict.STOPPED:
                return self._commit(Outcome.STOPPED, text)
            case Verdict.COMMIT:
                return self._commit(Outcome.ANSWERED, text)

    def _commit(self, outcome: Outcome, result: str) -> CommitTurn:
        stream = self._turn.stream if self._turn is not None else None
        answer = stream.text if stream is not None and (not result or result.isspace()) else result
        if not answer.strip():
            answer = ""
        if outcome is Outcome.ANSWERED and not answer:
            outcome = Outcome.NO_VISIBLE_REPLY
        return CommitTurn(
            self.claimed.lease,
            outcome,
            _clean(answer) or None,
            tuple(sorted({self.claimed.head.row, *[message.row for message in self._seen()]})),
            tail="" if stream is None else stream.tail,
            block=1 if stream is None else stream.block + 1,
            undecodable=self._unread,
        )

    def _seen(self) -> Iterable[TurnMessage]:
        """What this turn has given to its agent. If it was stopped before this attempt ran, an earlier one has had what came along."""
        if self._turn is not None:
            return self._turn.messages
        return self.claimed.carried if self.claimed.lease.attempt > 1 else ()


async def _nothing() -> None:
    """The run of no agent."""


def _facts(claimed: Claimed) -> TurnFacts:
    head, lease = claimed.head, claimed.lease
    return TurnFacts(
        project=claimed.scope.project,
        session=claimed.session,
        agent=claimed.agent,
        turn=turn_id(head.id),
        attempt=lease.attempt,
        message=head.id,
        message_id=head.message_id,
        chain=head.chain,
        kind=head.kind,
        created_at=head.created_at,
        mailbox=lease.mailbox,
        epoch=lease.epoch,
    )


def _from_outside(failure: BaseException) -> bool:
    """Whether somebody ends this task: an interrupt, or a cancelled scope around it. A Cancelled that an agent kept is its failure."""
    if any(isinstance(leaf, KeyboardInterrupt) for leaf in _leaves(failure)):
        return True
    try:
        return trio.current_effective_deadline() == -math.inf
    except RuntimeError:  # the run is over, and this coroutine is being closed
        return True


def _say(failure: BaseException | None) -> str:
    """What failed, for people: the first error of a group, its type and text, within the row's limit."""
    first = next(iter(_leaves(failure)), failure)
    try:
        text = str(first)
    except Exception:
        text = "it can't be shown"
    return _clean(f"{type(first).__name__}: {text}")[:ERROR_CHARS]


def _leaves(failure: BaseException | None) -> list[BaseException]:
    waiting, found = [failure] if failure is not None else [], list[BaseException]()
    while waiting:
        error = waiting.pop()
        if isinstance(error, BaseExceptionGroup):
            waiting.extend(reversed(cast("BaseExceptionGroup[BaseException]", error).exceptions))
        else:
            found.append(error)
    return found


def _clean(text: str) -> str:
    """Text that any database takes: an agent's answer may hold NUL or half a surrogate pair."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
