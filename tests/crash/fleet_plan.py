"""Who talks to whom while processes of a fleet are killed: the sessions, what is posted to each, what must be answered.

Not here: posting it (`fleet_load`), the agents themselves (`worker_agents`), judging (`fleet_checks`).
"""

from __future__ import annotations

import attrs


@attrs.frozen
class Role:
    """`count` sessions of an agent, each of which gets a message every `pause` seconds or so, `most` at the end of all."""

    agent: str
    count: int
    pause: float
    most: int = 1_000


ROLES = {
    "nothing": Role("nothing", 20, 0.8),
    "inside": Role("nothing", 4, 0.8),
    "stream": Role("stream", 8, 1.5),
    "lasting": Role("lasting", 8, 4.0),
    "flaky": Role("flaky", 6, 3.0),
    "relay": Role("relay", 8, 2.0),
    "tinker": Role("tinker", 4, 3.0),
    "parent": Role("parent", 3, 4.0),
    "slow": Role("slow", 4, 2.0),
    "failing": Role("failing", 1, 1.0, most=1),
}
"""By the first segment of their paths; `inside` are posted to by a program with the store open, all others over HTTP."""
HELPER = "/helper"
PLACES = {HELPER: "nothing"} | {f"/{name}/{n}": role.agent for name, role in ROLES.items() for n in range(role.count)}
"""Sessions by path, and the agent of each."""
FAILED = {"failing"}
STREAMED = f" | {'x' * 210} | end"
LASTING = [f"{n} ".ljust(210, ".") for n in range(25)]
"""What an agent says for two and a half seconds, each part a commit: when its process is struck, some write of it is under way."""


def text_for(path: str, k: int) -> str:
    """What the `k`-th message to a session says."""
    name = path.split("/")[1]
    if name == "flaky":
        return f"fail {k}" if k % 4 == 2 else f"go {k}"
    if name == "relay":
        return f"{path.replace('relay', 'nothing')} relayed {k}"
    return f"message {k}"


def wrong_answer(name: str, asked: str, answer: str) -> bool:
    """Whether an agent of `name` can't have given this answer to a person's message."""
    match name:
        case "nothing" | "inside" | "flaky" | "helper":
            return answer != f"ok {asked}"
        case "lasting":
            return answer != "".join(LASTING)
        case "stream":
            return answer != asked + STREAMED
        case "relay":
            return answer != f"sent {asked.partition(' ')[2]}"
        case "parent":
            return not answer.startswith(("child ses_", "refused too_many_children"))
        case "tinker":
            return answer.count("; ") != 6
        case "slow":
            return not answer.startswith("partial ")
        case _:
            return True
