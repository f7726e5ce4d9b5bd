"""How Hypothesis draws programs of ops. What they aim at: turns and what becomes of them, and batches that name the same things again.

Not here: the commands (`model_program`).
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from callboard.storage.model.messages import Kind
from callboard.tests.contract.model_program import Batch, Finish, Outside, Renewing, Send, Step, Take

_few = st.integers(0, 3)
_posts = st.sampled_from([Kind.MEMBER_MESSAGE, Kind.AGENT_MESSAGE])
_send = st.builds(
    Send, to=_few, kind=st.sampled_from([Kind.MEMBER_MESSAGE, Kind.AGENT_MESSAGE, Kind.NOTICE]), name=_few,
    text=st.integers(0, 1), by=_few, attempts=st.integers(1, 2), depth=st.sampled_from([None, None, None, 1, 3]),
    pair=st.sampled_from([None, None, 1]),
)  # fmt: skip
_alike = st.builds(
    Send, to=st.just(0), kind=st.just(Kind.AGENT_MESSAGE), name=st.integers(0, 2), text=st.just(0), by=st.just(0),
    attempts=st.just(2), depth=st.sampled_from([None, 1, 2, 3]), pair=st.sampled_from([None, 1, 2]),
)  # fmt: skip
_take = st.builds(
    Take,
    holder=st.integers(0, 1),
    agents=st.integers(0, 1),
    again=st.booleans(),
    exclude=st.sampled_from([False, False, True]),
)
_finish = st.builds(
    Finish, lease=_few, how=st.sampled_from(["commit", "commit", "stop", "retry", "fail", "hand back"]),
    answer=st.booleans(), also=st.sampled_from([0, 0, 0, 1, 2, 3]), delay=st.booleans(),
)  # fmt: skip
_commit = st.builds(
    Finish,
    lease=_few,
    how=st.just("commit"),
    answer=st.booleans(),
    also=st.sampled_from([0, 0, 1]),
    delay=st.just(False),
)
_step = st.builds(
    Step, lease=_few, what=st.sampled_from(["absorb", "tokens", "begin", "done", "send", "child", "child"]),
    key=st.integers(1, 3), to=_few,
)  # fmt: skip
_renew = st.builds(Renewing, count=st.integers(1, 4))
_outside = st.builds(
    Outside, what=st.sampled_from(["stop", "cancel", "requeue", "child", "delete", "void", "events", "messages"]),
    n=st.integers(0, 9), flag=st.booleans(),
)  # fmt: skip
_to_people = st.builds(
    Outside, what=st.sampled_from(["stop", "cancel", "requeue"]), n=st.integers(0, 9), flag=st.booleans()
)
_any = st.one_of(_send, _send, _take, _finish, _finish, _step, _renew, _outside, _to_people, _to_people)
_commands = st.one_of(
    st.lists(_any, min_size=1, max_size=6),
    st.lists(_any, min_size=3, max_size=6),
    st.lists(_send, min_size=2, max_size=8),
    st.lists(_alike, min_size=2, max_size=5),
    st.lists(st.one_of(_commit, _commit, _finish), min_size=2, max_size=4),
    st.tuples(_send, _take).map(list),
)
_sometimes = st.sampled_from([False, False, True])
_batches = st.builds(Batch, commands=_commands, twice=_sometimes, again=_sometimes, wait=_sometimes)


def _alone(command: st.SearchStrategy[Any]) -> st.SearchStrategy[Batch]:
    return st.builds(
        Batch, commands=st.tuples(command).map(list), twice=st.just(False), again=_sometimes, wait=st.just(False)
    )


def _scene(to: int) -> st.SearchStrategy[tuple[Batch, ...]]:
    """What few programs would come to by chance: ends that come too late, turns that are taken up again, stops that outlive their turn."""
    send = _alone(st.builds(Send, to=st.just(to), kind=_posts, name=st.just(0), text=st.just(0), by=st.just(0),
                            attempts=st.just(3), depth=st.none(), pair=st.none()))  # fmt: skip
    take = _alone(
        st.builds(Take, holder=st.integers(0, 1), agents=st.just(1), again=st.just(False), exclude=st.just(False))
    )
    back = _alone(st.builds(Finish, lease=st.just(0), how=st.sampled_from(["retry", "hand back"]), answer=st.just(True),
                            also=st.just(0), delay=st.just(False)))  # fmt: skip
    late, commit = (
        _alone(
            st.builds(
                Finish, lease=lease, how=st.just("commit"), answer=st.booleans(), also=st.just(0), delay=st.just(False)
            )
        )
        for lease in (st.just(1), st.just(0))
    )
    lost, stop, cancel = (
        _alone(st.builds(Outside, what=st.just(what), n=n, flag=st.booleans()))
        for what, n in (("void", st.just(0)), ("stop", st.just(to)), ("cancel", _few))
    )
    absorb = _alone(st.builds(Step, lease=st.just(0), what=st.just("absorb"), key=st.integers(1, 2), to=st.just(0)))
    return st.one_of(
        st.tuples(send, take, lost, take, commit, late),
        st.tuples(send, take, send, absorb, back, take, commit),
        st.tuples(send, send, take, stop, back, cancel, take, commit),
        st.tuples(send, take, send, absorb, back, cancel, take, commit),
        st.tuples(
            st.builds(
                Batch,
                commands=st.lists(_alike, min_size=1, max_size=2),
                twice=st.just(True),
                again=st.just(True),
                wait=st.just(False),
            )
        ),
    )


_pieces = st.one_of(
    st.tuples(_batches),
    st.tuples(_batches),
    # A turn and its end, and somebody who meddles with what is left of it.
    st.tuples(_alone(_send), _alone(_take), _alone(_step), _alone(_finish), _alone(_to_people)),
    st.tuples(_alone(_take), _alone(_finish), _alone(_take), _alone(_finish)),
    st.integers(0, 2).flatmap(_scene),
)
programs = st.lists(_pieces, min_size=3, max_size=10).map(lambda pieces: [batch for piece in pieces for batch in piece])
