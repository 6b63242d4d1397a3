"""`anydepth ...` in a process of its own that need not import everything anew.

Two servers, for each process of pytest, fork for each command: one has imported the packages that anydepth needs, the
other anydepth too. What they run has its own standard input and output, environment and exit code, as a command in a
shell has. `python tests/forked.py FD FD` is the servers; `start` asks one of them. Elsewhere than
on Linux a fork of what uses threads is not safe: `python tests/forked.py --here REQUEST` runs one command.
"""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pkgutil import walk_packages

# What verbs import when they run: these, and all of anydepth but what starts threads and the command line itself, whose
# consoles are made for one environment and terminal.
HEAVY = (
    "ctranslate2",
    "fastapi",
    "jinja2",
    "matplotlib.pyplot",
    "prometheus_client",
    "pydantic",
    "rich.progress",
    "sacrebleu",
    "sentencepiece",
    "tokenizers",
    "torch._dynamo",  # every optimizer imports it
    "typer.main",
    "uvicorn",
    "yaml",
)
LEFT_OUT = ("anydepth.cli", "anydepth.serve", "anydepth.models", "anydepth.engines.onnx")


class Process:
    """What tests use of `subprocess.Popen`, for a process that is not our child."""

    def __init__(self, pid: int, status: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        if self.returncode is None:
            self._status.setblocking(False)
            try:
                self.wait()
            except BlockingIOError:
                self._status.setblocking(True)
        return self.returncode

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = int.from_bytes(_receive(self._status, 4), "big", signed=True)
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    arguments: list[str], stdin: int, stdout: int, stderr: int, env: dict[str, str] | None = None, **how: object
) -> "Process | subprocess.Popen[bytes]":
    """`how`: fresh=True, nothing of anydepth is imported yet; script: Python to run instead of the command line; cwd;
    file_limit, in bytes; dies=(text, operation): as if by `kill -9` at that operation, counted from 1, on files whose
    path contains the text; stops=(text, operation): it stands still there."""
    request = {"arguments": arguments, "env": dict(os.environ) if env is None else env, "cwd": os.getcwd(), **how}
    if sys.platform != "linux":
        command = [sys.executable, __file__, "--here", json.dumps(request)]
        return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr)
    server = _servers()[bool(how.get("fresh"))]
    ours, theirs = socket.socketpair()
    data = json.dumps(request).encode()
    socket.send_fds(server, [len(data).to_bytes(4, "big")], [stdin, stdout, stderr, theirs.fileno()])
    server.sendall(data)
    theirs.close()
    return Process(int.from_bytes(_receive(ours, 4), "big"), ours)


def run(
    arguments: list[str], stdin: bytes, env: dict[str, str] | None = None, **how: object
) -> subprocess.CompletedProcess[bytes]:
    """To its end. `how` is as for `start`."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        given.write(stdin)
        given.seek(0)
        process = start(arguments, given.fileno(), out.fileno(), errors.fileno(), env, **how)
        try:
            code = process.wait()
        except BaseException:  # such as a time limit of pytest
            process.kill()
            raise
        for file in (out, errors):
            file.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), errors.read())


@cache
def _servers() -> tuple[socket.socket, socket.socket]:
    """One that has imported anydepth, and one that has not."""
    (warm, one), (cold, other) = socket.socketpair(), socket.socketpair()
    files = (one.fileno(), other.fileno())
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    subprocess.Popen([sys.executable, __file__, *map(str, files)], env=environment, pass_fds=files)
    one.close()
    other.close()
    return warm, cold


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionError("the other side has ended")
        data += more
    return data


def _serve_both(warm: socket.socket, cold: socket.socket) -> None:
    for name in HEAVY:
        import_module(name)
    if os.fork():
        warm.close()
        return _serve(cold)
    cold.close()
    import anydepth

    for module in walk_packages(anydepth.__path__, "anydepth."):
        if "._" not in module.name and not module.name.startswith(LEFT_OUT):
            import_module(module.name)
    return _serve(warm)


def _serve(connection: socket.socket) -> None:
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads must not be forked: add to LEFT_OUT"
    watchers: list[int] = []
    while True:
        head, files, _, _ = socket.recv_fds(connection, 4, 4)
        if not head:
            return
        request = json.loads(_receive(connection, int.from_bytes(head, "big")))
        watcher = os.fork()
        if not watcher:
            connection.close()
            _watch(request, files)
        for file in files:
            os.close(file)
        watchers = [one for one in (*watchers, watcher) if os.waitpid(one, os.WNOHANG) == (0, 0)]


def _watch(request: dict, files: list[int]) -> None:
    """Say when the command has ended: the server does not wait for it."""
    process = os.fork()
    if not process:
        os.close(files.pop())
        _become(request, files)
    for file in files[:3]:
        os.close(file)
    status = socket.socket(fileno=files[3])
    status.sendall(process.to_bytes(4, "big"))
    _, ended = os.waitpid(process, 0)
    status.sendall(os.waitstatus_to_exitcode(ended).to_bytes(4, "big", signed=True))
    os._exit(0)


def _become(request: dict, files: list[int]) -> None:
    """The command, to its end."""
    code = 1
    try:
        for target, file in enumerate(files):
            os.dup2(file, target)
            os.close(file)
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        encoding, _, errors = os.environ.get("PYTHONIOENCODING", "utf-8").partition(":")
        sys.stdin = open(0, encoding=encoding, errors=errors or None)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding=encoding, errors=errors or None)  # noqa: SIM115
        sys.stderr = open(2, "w", 1, encoding=encoding, errors="backslashreplace")  # noqa: SIM115
        _call_main(request)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _call_main(request: dict) -> None:
    sys.argv = ["anydepth", *request["arguments"]]
    if script := request.get("script"):
        exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
        sys.exit()
    from anydepth.cli import main

    if limit := request.get("file_limit"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    for name, number in (("dies", signal.SIGKILL), ("stops", signal.SIGSTOP)):
        if place := request.get(name):
            sys.addaudithook(_signaller(number, *place))
    main()


def _signaller(number: int, text: str, operation: int) -> Callable[[str, tuple[object, ...]], None]:
    """Ends or stops this process just before a file or folder changes: on a machine of any speed, always the same."""
    left = operation

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"):
            left -= any(text in str(one) for one in arguments[:2])
            if left == 0:
                os.kill(os.getpid(), number)

    return count


if __name__ == "__main__":
    if sys.argv[1] == "--here":
        asked = json.loads(sys.argv[2])
        os.chdir(asked["cwd"])
        os.environ.update(asked["env"])
        _call_main(asked)
    _serve_both(*(socket.socket(fileno=int(file)) for file in sys.argv[1:]))
