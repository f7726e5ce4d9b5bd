"""A session that a front listens to, from now on or from so far back that all of its running turn is seen, and what its last result was.

Not here: what is done about what is heard (`front`).
"""

from __future__ import annotations

from typing import Final

import attrs
import trio

from .conversation import Conversation
from .handoffs import Handoff, LastResult, transcript_result
from .live import LiveClient
from .rest import Place, Rest
from .subscription import Subscription

FROM_NOW: Final = 2**62
"""A cursor beyond any event: the server says where "now" is."""
WINDOW: Final = 512
"""Events before the newest that a reload sees at first: more than nearly every turn has."""
WIDER: Final = 8


@attrs.define(eq=False)
class Followed:
    """A session that is listened to."""

    place: Place
    events: Subscription
    conversation: Conversation = attrs.field(factory=Conversation)
    fresh: bool = True
    """The next gap is the answer to `FROM_NOW`."""
    heard: trio.Event = attrs.field(factory=trio.Event)
    """That answer is there: whatever is said from here on is heard. Set also if nothing will be heard any more."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)


async def look_back(live: LiveClient, rest: Rest, place: Place) -> tuple[Followed, Handoff | None]:
    """Listen to a session, with all that its running turn has said; and the handoff of its last result, if it has one (HND-4).

    Raises as iterating a subscription does, and as the calls of `Rest` do.
    """
    probe = live.subscribe(place.session, after=FROM_NOW)
    now = await anext(probe)
    probe.leave()
    newest, oldest = int(now.data["after"]), int(now.data["oldest"])
    window = WINDOW
    while True:
        after = max(oldest - 1, newest - window, 0)
        followed = Followed(place, live.subscribe(place.session, after=after), fresh=False)
        last = LastResult(place.session)
        while followed.events.cursor < newest:
            event = await anext(followed.events)
            last.see(event.id, event.kind, event.data)
            followed.conversation.see(event)
        if last.known or after < oldest:
            break
        followed.events.leave()
        window *= WIDER
    if last.known or last.found is not None:
        return followed, last.found
    # A result that is a day old is in no log any more.
    found = transcript_result(place.session, await rest.newest(place.session))
    # What is newer than what was looked at comes as an event.
    return followed, found if found is not None and found.id <= newest else None
