"""Supervise plain async functions: no actors, no storage, nothing of Callboard but its supervision tree.

A listener that stops cooperatively, a poller that crashes twice and is restarted, and jobs that come and go.
"""

import trio

from callboard.supervisors.tree import (
    Backoff,
    Child,
    ChildSpec,
    DynamicSupervisor,
    Exited,
    Node,
    Restarting,
    Supervisor,
    TreeEvent,
    open_tree,
)

polled = trio.Event()
crashes = iter(["connection reset", "bad gateway"])


async def listener(*, task_status: trio.TaskStatus[None], child: Child) -> None:
    print("listener: bound")
    task_status.started()  # only now is the next child started
    await child.stopping.wait()
    print("listener: last guest served")


async def poller() -> None:
    for crash in crashes:
        raise ConnectionError(crash)
    polled.set()
    await trio.sleep_forever()


async def job(number: int) -> None:
    print(f"job {number}: done, quotient {12 // number}")


def on_failure(name: str, error: Exception) -> None:
    print(f"{name}: failed, harming nobody: {type(error).__name__}")


def observe(event: TreeEvent) -> None:
    match event:
        case Restarting(child=child):
            print(f"{child}: to be restarted")
        case Exited(child=child, exit=exit, error=error):
            print(f"{child}: exit {exit}" + (f", {error}" if error else ""))
        case _:
            pass


def show(node: Node, depth: int = 0) -> None:
    print(f"{'  ' * depth}{node.name} ({node.kind}) {node.state}, restarts {node.restarts}")
    for child in node.children:
        show(child, depth + 1)


async def main() -> None:
    jobs = DynamicSupervisor("jobs", on_failure=on_failure)
    children = [ChildSpec("listener", listener, cooperative=True), ChildSpec("poller", poller), jobs.spec()]
    backoff = Backoff(first_seconds=0.01, base_seconds=0.01)
    async with open_tree(Supervisor("root", children, backoff=backoff, observer=observe)) as tree:
        await polled.wait()
        for number in (3, 0):
            jobs.start(f"job {number}", job, number)
            await jobs.wait_ended(f"job {number}")
        show(tree.snapshot())


trio.run(main)
