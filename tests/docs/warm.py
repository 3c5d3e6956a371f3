"""`python -m tests.docs.warm FOLDER`: a vtwin that has imported all of itself, and forks for each command of a page.

A command is a process of its own all the same, in its caller's folder, with its environment, streams and signals, and
so is a page's Python, read from stdin by `warm-python`. What they lack is the second of importing and of loading
compiled code, which `tests/test_cli.py` and others have.
All workers of a run of the tests share one, which takes five CPU seconds to import everything.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NoReturn

ROOT = Path(__file__).parent.parent.parent
ROOMS = ("traces", "sim", "observe", "replay", "calibrate")
RARE = ROOT / "calibrate" / "predictor"  # imports scikit-learn, for one page
PREFIX = 4  # bytes of a length or of an exit code
CALLER = """\
#!{python} -IS
import json, os, signal, socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect({path!r})
told = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(link, [len(told).to_bytes({prefix}, "big")], [0, 1, 2])
link.sendall(told)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda number, frame: link.sendall(bytes([number])))
code = int.from_bytes(link.recv({prefix}) or b"1", "big", signed=True)
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""
"""What stands in for the console script: it sends its words and streams, passes signals on, ends as its child."""
PYTHON = "warm-python"
PROGRAMS = ("vtwin", PYTHON)


@dataclass(frozen=True, slots=True)
class Call:
    """What a caller wants done: its words, folder and environment, and the numbers of its streams here."""

    words: list[str]
    folder: str
    environment: dict[str, str]
    streams: list[int]


@contextmanager
def warm_vtwin(folder: Path) -> Iterator[Path]:
    """Yield a folder for PATH with ``PROGRAMS`` that a warm vtwin serves; all processes that name ``folder`` share it.

    It ends, and its children with it, when the last of them has left. Who started it waits for that.
    """
    folder.mkdir(exist_ok=True)
    started = None
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = _held(folder)
        if held is None:
            started, held = _started(folder)
    try:
        yield folder / "bin"
    finally:
        os.close(held)
        if started is not None:
            started.wait()


def _held(folder: Path) -> int | None:
    """Return a file that keeps the folder's warm vtwin from ending while it is open; None where there is none."""
    try:
        held = os.open(folder / "users", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # there is no such pipe, or nobody reads it
        return None
    with socket.socket(socket.AF_UNIX) as link, suppress(OSError):
        link.connect(str(folder / "socket"))
        socket.send_fds(link, [bytes(PREFIX)], [0])
        if link.recv(1):  # else it has seen that the last one left, and ends
            return held
    os.close(held)
    return None


def _started(folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start a warm vtwin; return it, once it serves, and a file that keeps it from ending."""
    for name in ("users", "socket"):
        (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / "users")
    held = os.open(folder / "users", os.O_RDWR)  # only to write would wait for who reads
    (folder / "bin").mkdir(exist_ok=True)
    for script in (folder / "bin" / name for name in PROGRAMS):
        script.write_text(CALLER.format(python=sys.executable, path=str(folder / "socket"), prefix=PREFIX))
        script.chmod(0o755)
    command = [sys.executable, "-m", "tests.docs.warm", str(folder)]
    server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert server.stdout is not None
    with server.stdout:
        assert server.stdout.readline() == b"ready\n"
    return server, held


def prepare() -> None:
    """Import every module and load the compiled code."""
    from sim import RUN_VARIANTS, compile_engine
    from sim.cluster.cluster_ready import compile_cluster

    for room in ROOMS:
        for path in sorted(set((ROOT / room).rglob("*.py")) - set(RARE.rglob("*.py"))):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            with suppress(ImportError):  # what only another system or an extra has
                import_module(name.removesuffix(".__init__"))
    for variant in RUN_VARIANTS:
        compile_engine(variant)
    compile_cluster()
    gc.freeze()  # else the collector of a child copies all pages of memory


class Served:
    """The sockets of a warm vtwin, and its children: the caller of each, by its process number."""

    def __init__(self, folder: Path) -> None:
        self.children: dict[int, socket.socket] = {}
        self.users = os.open(folder / "users", os.O_RDONLY | os.O_NONBLOCK)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(folder / "socket"))
        self.listener.listen(64)
        self.ended, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        signal.set_wakeup_fd(self._wake.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.ready = selectors.DefaultSelector()
        for each in (self.listener, self.ended, self.users):
            self.ready.register(each, selectors.EVENT_READ)

    def until_called(self) -> Call | None:
        """Serve until the last user has left: None; and return, in each forked child, what it is to do."""
        while True:
            for event, _ in self.ready.select():
                if event.fileobj == self.users:
                    if not self._is_alone():
                        continue
                    for pid in self.children:
                        _kill(pid)
                    return None
                if event.fileobj is self.ended:
                    self.ended.recv(4096)
                    self._tell_ends()
                elif event.fileobj is self.listener:
                    if (call := self._take_a_call()) is not None:
                        return call
                else:
                    self._heed_a_caller(event.data)

    def _is_alone(self) -> bool:
        """Return whether nobody has the pipe of the users open, which nobody writes to."""
        try:
            return not os.read(self.users, 1)
        except BlockingIOError:  # somebody came meanwhile
            return False

    def _take_a_call(self) -> Call | None:
        """Fork; return the call in the child. A call of no bytes only asks whether somebody is there."""
        link, _ = self.listener.accept()
        size, streams, _, _ = socket.recv_fds(link, PREFIX, 3)
        if not any(size):
            _close(streams)
            with link, suppress(OSError):  # who asked is gone
                link.sendall(b"!")
            return None
        told = b""
        while len(told) < int.from_bytes(size, "big"):
            told += link.recv(1 << 16)
        pid = os.fork()
        if pid == 0:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for end in (link, self.listener, self.ended, self._wake, self.ready, *self.children.values()):
                end.close()
            os.close(self.users)
            return Call(*json.loads(told), streams=streams)
        _close(streams)
        self.children[pid] = link
        self.ready.register(link, selectors.EVENT_READ, pid)
        return None

    def _heed_a_caller(self, pid: int) -> None:
        """Pass a signal on; end the child of a caller that is gone."""
        if pid not in self.children:  # it has just ended
            return
        if sent := self.children[pid].recv(1):
            os.kill(pid, sent[0])
        else:
            self.ready.unregister(self.children[pid])
            _kill(pid)

    def _tell_ends(self) -> None:
        """Tell the callers of children that have ended their exit codes."""
        for pid, link in list(self.children.items()):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                del self.children[pid]
                with suppress(KeyError, OSError):  # its caller is gone
                    self.ready.unregister(link)
                    link.sendall(os.waitstatus_to_exitcode(status).to_bytes(PREFIX, "big", signed=True))
                link.close()


def _close(numbers: list[int]) -> None:
    for number in numbers:
        os.close(number)


def _kill(pid: int) -> None:
    """End a child with all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def become(call: Call) -> None:
    """Make a caller's streams, folder and environment this process's own."""
    for number, stream in enumerate(call.streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    os.chdir(call.folder)
    os.environ.clear()
    os.environ.update(call.environment)
    sys.argv = [Path(call.words[0]).name, *call.words[1:]]


def run_stdin() -> int:
    """Run the Python on stdin as a program of its own, its folder not on the path; return the exit code."""
    sys.modules["__main__"] = main_module = ModuleType("__main__")
    try:
        exec(compile(sys.stdin.read(), "<stdin>", "exec"), main_module.__dict__)  # noqa: S102  a page of this project
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def leave(code: int) -> NoReturn:
    """End this child with what an exit runs, without Python's last look at all objects (0.1 CPU s)."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as an exit does
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it, or the program has closed it
            stream.flush()
    os._exit(code & 0xFF)


def main() -> int:
    """Serve; in a child: be the console script."""
    prepare()
    import vtwin

    served = Served(Path(sys.argv[1]))
    print("ready", flush=True)
    call = served.until_called()
    if call is None:
        return 0
    become(call)
    leave(run_stdin() if sys.argv[0] == PYTHON else vtwin.main())


if __name__ == "__main__":
    sys.exit(main())
