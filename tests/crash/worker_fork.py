"""One process that has imported everything forks a worker for each request: a worker is there in milliseconds, and is a real process.

Runs in the parent of all workers. `kit.Zygote` is the other end. Invariant: the parent runs no Trio, no thread and no store, so that
nothing of one worker is in another.
"""

from __future__ import annotations

import gc
import os
import socket
import sys


def fork_workers(control: int) -> str:
    """Serve requests on the socket `control` until its other end is closed, then exit. Returns in the children alone: which program to run.

    `fork PROGRAM` comes with two descriptors, the child's stdin and stdout, and is answered by its pid; `wait PID` by its exit code or minus
    the signal. A child stays a zombie until it is waited for, so a pid is never somebody else's.
    """
    gc.freeze()
    with socket.socket(fileno=control) as requests:
        while True:
            request, pipes, _, _ = socket.recv_fds(requests, 64, 2)
            match request.split():
                case [b"fork", program]:
                    pid = os.fork()
                    if pid == 0:
                        os.dup2(pipes[0], 0)
                        os.dup2(pipes[1], 1)
                    for pipe in pipes:
                        os.close(pipe)
                    if pid == 0:
                        return program.decode()
                    requests.send(b"%d" % pid)
                case [b"wait", pid]:
                    _, status = os.waitpid(int(pid), 0)
                    requests.send(b"%d" % os.waitstatus_to_exitcode(status))
                case _:
                    sys.exit(0)
