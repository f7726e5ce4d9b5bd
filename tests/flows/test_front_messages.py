"""How large messages are is known from their announcements, wherever the reads cut them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.edges.messages import MessageMeter
from callboard.tests.flows.raw_client import BINARY, CLOSE, PING, PONG, TEXT, client_frame

FRAMES = st.tuples(st.sampled_from([0, TEXT, BINARY, PING, PONG, CLOSE]), st.booleans(), st.integers(0, 300))


@given(st.lists(FRAMES, max_size=12), st.data())
def test_the_meter_lets_pass_what_is_before_the_first_excess(
    frames: list[tuple[int, bool, int]], data: st.DataObject
) -> None:
    limit = 400
    wire, message, expected = b"", 0, None
    for opcode, fin, size in frames:
        if opcode in (0, TEXT, BINARY):
            message = size + (message if opcode == 0 else 0)
            if message > limit and expected is None:
                expected = len(wire)
        else:
            size, fin = min(size, 125), True
        wire += client_frame(opcode, bytes(size), fin=fin)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=8)))
    meter = MessageMeter(limit)
    passed = 0
    for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        admitted = meter.admit(wire[start:end])
        passed += admitted
        if meter.exceeded:
            break
        assert admitted == end - start
    assert meter.exceeded == (expected is not None)
    if expected is not None:
        # A header that was cut by the end of a read has passed in part; no byte of payload has.
        assert expected <= passed < expected + 14
