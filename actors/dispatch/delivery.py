"""One delivery: a claimed mailbox, its turn in a lease scope, one end. It is the session's actor while the session has work.

The pipeline: load → decode → turn → commit. Decoding is inside, so a poison row is a failed message and never a dead dispatcher (RT-12).

Invariant: nothing runs under `scope` after the lease's trusted-until on the local monotonic clock, counted from before the request that
took or renewed it (RT-7); and exactly one ending op is sent for an epoch.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import attrs
import trio

from ...storage.changes import Aspect
from ...storage.model.addresses import session_address
from ...storage.model.errors import Busy, OutcomeUnknown, StoreDown, StoreFull, StoreReadOnly, Unavailable
from ...storage.model.ids import turn_id
from ...storage.model.limits import ERROR_CHARS, MAX_TAKEOVERS
from ...storage.model.messages import Kind
from ...storage.model.states import Outcome, Reason
from ...storage.model.turns import Claimed, StopRequest, TurnMessage
from ...storage.ops import CommitTurn, Fail, HandBack, Retry
from ...storage.ops.deliveries import End
from ..desk import Desk, in_turn
from ..ports import TurnEnd, TurnFacts
from ..session.agents.base import Runs
from ..session.steps import StepLog
from ..session.tokens import Pulse, TokenStream
from ..session.turn import Turn
from .leftovers import close_left_open
from .settlement import Ending, clear_stuck, settle_end
from .verdict import Verdict, backoff, judge

log: Final = logging.getLogger("callboard.delivery")
_KINDS: Final = frozenset(Kind)
_TROUBLE: Final = (Busy, OutcomeUnknown, StoreDown, StoreFull, StoreReadOnly)


class Undecodable(Exception):
    """A row whose contents make no message."""


@attrs.frozen
class Floor:
    """What all deliveries of a process share."""

    desk: Desk
    agents: Mapping[str, Runs]
    pulse: Pulse
    holder: str


class Delivery:
    """The actor of one session for one claim. `trusted_until` is on Trio's clock; `ended` says that its end was decided."""

    def __init__(self, claimed: Claimed, floor: Floor, trusted_until: float) -> None:
        self.claimed = claimed
        self.address = session_address(claimed.session)
        self.wants_control = False
        self.ended = False
        self.stuck = False
        self._floor = floor
        self._store = floor.desk.store
        self._trusted = trusted_until
        self._stop: StopRequest | None = claimed.stop
        self._stop_at = math.inf
        self._shutdown_at = math.inf
        self._expires = math.inf
        if claimed.deadline is not None:
            self._expires = trio.current_time() + claimed.deadline - self._store.now()
        self._shutdown = False
        self._lost = False
        self._turn: Turn | None = None
        self._unread: tuple[str, ...] = ()
        self._tokens = TokenStream(self._store, claimed.lease, floor.pulse)
        self._began = trio.current_time()
        self._facts = _facts(claimed)
        self._watch = floor.desk.meter.turn(self._facts)
        self.scope = trio.CancelScope(deadline=min(self._trusted, self._expires))

    # -- what the keeper and the dispatcher tell it --------------------------------------------------------------------

    def trust(self, until: float) -> None:
        """The lease was renewed. One that had run out stays lost: its agent was cut off, and what it leaves is no result."""
        if self.trusted:
            self._trusted = until
            self._retime()

    def lose(self) -> None:
        """The lease is gone: end without a word."""
        self._lost = True
        self._trusted = trio.current_time()
        self._retime()

    def stop(self, request: StopRequest) -> None:
        """A stop is stored for this turn: the agent sees it now, and is cancelled when its grace is over."""
        if self._stop is None:
            self._stop = request
            self._stop_at = trio.current_time() + request.grace
            self._ask()

    def shut_down(self, grace: float) -> None:
        """The process ends: same grace, then the message goes back."""
        self._shutdown = True
        self._shutdown_at = trio.current_time() + grace
        self._ask()

    @property
    def trusted(self) -> bool:
        """Whether the lease may still be relied on."""
        return not self._lost and trio.current_time() < self._trusted

    @property
    def overdue(self) -> float:
        """Seconds since the agent's scope was cancelled without its end; 0 if it was not."""
        return max(0.0, trio.current_time() - self.scope.deadline) if not self.ended else 0.0

    def _ask(self) -> None:
        if self._turn is not None:
            self._turn.ask_to_stop()
        self._retime()

    def _retime(self) -> None:
        self.scope.deadline = min(self._trusted, self._stop_at, self._shutdown_at, self._expires)

    # -- the pipeline --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run the claimed turn to its one end. Raises nothing but what cancels it from outside, after it has given the lease back."""
        changes = self._store.changes
        changes.add(self.address, self._hint)
        try:
            ending = await self._deliver()
        except BaseException:
            if not self.ended and self.trusted:
                await self.end(HandBack(self.claimed.lease, "cancelled"))
            raise
        finally:
            changes.drop(self.address, self._hint)
        if self.ended:
            # It was given up as stuck while its agent would not end; now it has, and the session may run here again.
            await clear_stuck(self._store, self.claimed.lease.mailbox, self._floor.holder)
        elif ending is not None:
            await self.end(ending)
        else:
            self._tell("lost")

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
            await self.end(ending)

    async def end(self, ending: Ending) -> None:
        """Send the one end. Nothing else is written at this epoch but the step that tells of an unknown outcome."""
        self.ended = True
        if self._turn is not None:
            self._turn.end()
        written = await settle_end(self._store, self.claimed, ending, lambda: self.trusted)
        if written is None:
            self._tell("unknown")
        elif isinstance(ending, CommitTurn) and written.end is End.COMMITTED:
            self._tell(ending.outcome, written.seq)
        else:
            self._tell(written.end)

    def _tell(self, end: str, seq: int | None = None) -> None:
        """The one line about this attempt, and whoever watches it."""
        facts, seconds = self._facts, trio.current_time() - self._began
        if log.isEnabledFor(logging.INFO):
            shown = {
                "session": facts.session,
                "message_id": facts.message_id,
                "attempt": facts.attempt,
                "outcome": str(end),
                "seconds": round(seconds, 4),
            }
            log.info("a turn ended: %s", end, extra=shown)
        self._watch.ended(TurnEnd(str(end), seconds, seq))

    async def _deliver(self) -> Ending | None:
        claimed = self.claimed
        if claimed.takeovers >= MAX_TAKEOVERS:
            return Fail(claimed.lease, Reason.TAKEOVERS_USED, f"{claimed.takeovers} workers lost it")
        try:
            _check_row(claimed.head)
        except Undecodable as error:
            return Fail(claimed.lease, Reason.UNDECODABLE, str(error))
        # What only came along must not fail the head: the turn goes on without it.
        self._unread = tuple(message.id for message in claimed.carried if not _readable(message))
        if self._unread:
            sound = tuple(message for message in claimed.carried if message.id not in self._unread)
            self.claimed = claimed = attrs.evolve(claimed, carried=sound)
        result: str | None = None
        failure: BaseException | None = None
        try:
            with self.scope:
                steps = await self._load()
                if self._stop is None:
                    result = await self._run_agent(steps)
        except BaseException as error:
            # Whatever an agent raises is its failure, SystemExit too, and what it raises while it is being cancelled.
            if _from_outside(error):
                raise
            failure = error
        try:
            return self._judged(result, failure)
        except Exception as error:
            # What an agent hands over may break at a touch: its failure, or its message would come back for ever.
            log.exception("the end of %s can't be judged", self.address)
            return Retry(claimed.lease, f"unusable result: {type(error).__name__}", backoff(claimed.attempts + 1))

    async def _load(self) -> StepLog:
        claimed = self.claimed
        reads = self._store.reads
        known = await reads.steps(claimed.scope, claimed.head.id) if claimed.steps else ()
        if self._stop is not None:
            # Stopped by an earlier holder: nothing runs again, what it had streamed is the answer (RT-4).
            texts = await reads.tokens(claimed.scope, claimed.session, self._facts.turn)
            self._tokens.recover(texts.get(max(texts, default=0), ""))
        return StepLog(self._store, claimed.scope, claimed.lease, self._facts.turn, known)

    async def _run_agent(self, steps: StepLog) -> str | None:
        claimed = self.claimed
        agent = self._floor.agents[claimed.agent]
        has_committed = getattr(agent, "has_committed", None)
        if claimed.steps and has_committed is not None and await has_committed(claimed.head.message_id):
            return None
        self._turn = Turn(claimed, self._floor.desk, steps, self._tokens)
        if self._shutdown:
            self._turn.ask_to_stop()
        token = in_turn.set(claimed.session)
        try:
            with self._watch.running():
                result = await agent.run(self._turn)
        finally:
            in_turn.reset(token)
            if trio.lowlevel.current_task().child_nurseries:
                await close_left_open()
        if result is not None and not isinstance(result, str):
            raise TypeError(f"an agent returns text or None, not {type(result).__name__}")
        return result

    # -- judging -------------------------------------------------------------------------------------------------------

    def _judged(self, result: str | None, failure: BaseException | None) -> Ending | None:
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
                    if isinstance(leaf, _TROUBLE) and leaf.store is self._store:
                        return HandBack(claimed.lease, leaf.code, delay=Unavailable.retry_after)
                log.warning("attempt %d of %s failed: %s", claimed.lease.attempt, self.address, type(failure).__name__)
                return Retry(claimed.lease, _say(failure), backoff(claimed.attempts + 1))
            case Verdict.STOPPED:
                return self._commit(Outcome.STOPPED, result)
            case Verdict.COMMIT:
                return self._commit(Outcome.ANSWERED, result)

    def _commit(self, outcome: Outcome, result: str | None) -> CommitTurn:
        answer = result if result and not result.isspace() else self._tokens.text
        if not answer.strip():
            answer = ""
        if outcome is Outcome.ANSWERED and not answer:
            outcome = Outcome.NO_VISIBLE_REPLY
        return CommitTurn(
            self.claimed.lease,
            outcome,
            _clean(answer) or None,
            tuple(sorted({self.claimed.head.row, *(message.row for message in self._seen())})),
            tail=self._tokens.tail,
            block=self._tokens.block + 1,
            undecodable=self._unread,
        )

    def _seen(self) -> Iterable[TurnMessage]:
        """What this turn has given to its agent. If it was stopped before this attempt ran, an earlier one has had what came along."""
        if self._turn is not None:
            return self._turn.messages
        return self.claimed.carried if self.claimed.lease.attempt > 1 else ()

    def _hint(self, aspect: int) -> None:
        if aspect & Aspect.CONTROL:
            self.wants_control = True


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


def _readable(message: TurnMessage) -> bool:
    try:
        _check_row(message)
    except Undecodable:
        return False
    return True


def _check_row(message: TurnMessage) -> None:
    if message.kind not in _KINDS:
        raise Undecodable(f"the kind {message.kind[:40]!r} is unknown")
    if not isinstance(message.content, str) or not message.content:  # a damaged row, whatever the type says
        raise Undecodable("it has no text")
    if message.payload is not None:
        try:
            value: Any = json.loads(message.payload)
        except ValueError as error:
            raise Undecodable(f"its payload is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise Undecodable("its payload is not an object")


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
