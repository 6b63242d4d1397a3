"""`anydepth ...` in a process of its own that need not import everything anew.

A server, one for each process of pytest, has imported what verbs need, and forks for each command. What it runs has its
own standard input and output, environment and exit code, as a command in a shell has. `python tests/forked.py FD` is
the server; `run` asks it. `python tests/forked.py --dies TEXT OPERATION ...` is a command that dies as `run` says.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from importlib import import_module
from pkgutil import walk_packages

import anydepth

# What verbs import when they run: these, and all of anydepth but what starts threads and the command line itself, whose
# consoles are made for one environment and terminal.
HEAVY = (
    "ctranslate2",
    "jinja2",
    "matplotlib.pyplot",
    "rich.progress",
    "sacrebleu",
    "sentencepiece",
    "torch._dynamo",  # every optimiser imports it
    "typer.main",
)
LEFT_OUT = ("anydepth.cli", "anydepth.serve", "anydepth.models", "anydepth.engines.onnx")


def run(
    arguments: list[str], stdin: bytes, env: dict[str, str], dies: tuple[str, int] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """`dies`: as if by `kill -9` at the given operation, counted from 1, on files whose path contains a text."""
    server = _server()
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        given.write(stdin)
        given.seek(0)
        request = json.dumps({"arguments": arguments, "env": env, "cwd": os.getcwd(), "dies": dies}).encode()
        socket.send_fds(server, [len(request).to_bytes(4, "big")], [one.fileno() for one in (given, out, errors)])
        server.sendall(request)
        process = int.from_bytes(_receive(server, 4), "big")
        try:
            code = int.from_bytes(_receive(server, 4), "big", signed=True)
        except BaseException:  # such as a time limit of pytest
            os.kill(process, signal.SIGKILL)
            _receive(server, 4)
            raise
        for file in (out, errors):
            file.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), errors.read())


@cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    subprocess.Popen([sys.executable, __file__, str(theirs.fileno())], env=environment, pass_fds=[theirs.fileno()])
    theirs.close()
    return ours


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionError("the other side has ended")
        data += more
    return data


def _serve(connection: socket.socket) -> None:
    for name in HEAVY:
        import_module(name)
    for module in walk_packages(anydepth.__path__, "anydepth."):
        if "._" not in module.name and not module.name.startswith(LEFT_OUT):
            import_module(module.name)
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads must not be forked: add to LEFT_OUT"
    while True:
        head, files, _, _ = socket.recv_fds(connection, 4, 3)
        if not head:
            return
        request = json.loads(_receive(connection, int.from_bytes(head, "big")))
        process = os.fork()
        if not process:
            connection.close()
            _become(request, files)
        for file in files:
            os.close(file)
        connection.sendall(process.to_bytes(4, "big"))
        _, status = os.waitpid(process, 0)
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))


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
        _call_main(request["arguments"], request["dies"])
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _call_main(arguments: list[str], dies: tuple[str, int] | None) -> None:
    sys.argv = ["anydepth", *arguments]
    from anydepth.cli import main

    if dies is not None:
        _die_at(*dies)
    main()


def _die_at(text: str, operation: int) -> None:
    """At any moment that matters, whatever the speed of the machine: just before a file or folder changes."""
    left = operation

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"):
            left -= any(text in str(one) for one in arguments[:2])
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


if __name__ == "__main__":
    if sys.argv[1] == "--dies":  # without a server, which is for Linux alone
        _call_main(sys.argv[4:], (sys.argv[2], int(sys.argv[3])))
    _serve(socket.socket(fileno=int(sys.argv[1])))
