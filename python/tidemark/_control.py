"""Starts and stops the recorder of this process, over its own control socket (proto/control.h)."""
import contextlib
import dataclasses
import os
import pathlib
import shutil
import socket
import struct
import tempfile
import time
import urllib.parse
import warnings
from typing import Any, Dict, Iterator, List, Optional, Union

from . import _library, _report
from ._library import Error

Path = Union[str, "os.PathLike[str]"]

_STATE_MS = 90_000  # the bridge to PyTorch may have to be compiled first
_ANSWER_SECONDS = 120
_SOCKET_SECONDS = 3  # from loading the library to its socket


@dataclasses.dataclass
class Recording:
    """One recording: its trace, and when it has ended, how many events it has and lost."""
    trace: Optional[pathlib.Path] = None
    rows: Optional[int] = None
    dropped: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class DeviceStats:
    """The memory of one GPU now, in bytes; None: not known."""
    device: int
    name: str
    total: Optional[int]
    used: Optional[int]  # by all processes
    process: Optional[int]  # by this one
    allocated: Optional[int]  # by PyTorch's allocator
    requested: Optional[int]
    reserved: Optional[int]
    largest_hole: Optional[int]


# What a recording may be started with: TIDEMARK_X in lower case (injector/process/options.cpp), and
# for_ms, which ends it.
OPTIONS = frozenset({
    "annotations", "bridge", "buffer_mb", "copies", "cupti", "for_ms", "kernels", "keep", "modules",
    "nccl", "nvml_hz", "optimizer", "overhead", "python_gil", "ring_dir", "seal_above", "seal_signal",
    "stacks", "torch"})


def load() -> bool:
    """Loads the recorder into this process, as `tidemark attach` does. It then waits for `start`
    or `record`. False if it is not installed."""
    if _library.find() is not None:
        return True
    path = _report.library_path()
    if path is None:
        return False
    try:
        _arm(str(path))
    except OSError as error:
        raise Error(f"the library could not be loaded: {error}") from None
    return True


def start(out: Path = "tidemark-trace", **options: Any) -> Optional[Recording]:
    """Starts to record into the directory `out`, and returns when PyTorch's allocator is recorded.

    Options are the variables TIDEMARK_X in lower case: kernels=False, stacks="python", nvml_hz=10.
    """
    for name in options:
        if name not in OPTIONS:
            raise TypeError(f"unknown option {name!r}; known are {', '.join(sorted(OPTIONS))}")
    reply = _ask("start", out=os.path.abspath(out), wait_ms=_STATE_MS, **options)
    return None if reply is None else Recording(pathlib.Path(reply["trace"]))


def stop() -> Optional[Recording]:
    """Ends the recording, also one that `tidemark run` started."""
    reply = _ask("stop")
    return None if reply is None else _ended(reply)


@contextlib.contextmanager
def record(out: Path = "tidemark-trace", **options: Any) -> Iterator[Recording]:
    """Records the body of the `with` statement into the directory `out`; options as in `start`.

    If this is not possible, for instance because everything is being recorded already, it warns and
    the body runs without.
    """
    recording = Recording()
    started = None
    try:
        started = start(out, **options)
    except Error as error:
        warnings.warn(f"tidemark: not recorded: {error}", RuntimeWarning, stacklevel=3)
    if started is not None:
        recording.trace = started.trace
    try:
        yield recording
    finally:
        if started is not None:
            try:
                recording.__dict__.update(_ended(_ask("stop") or {}).__dict__)
            except Error as error:
                warnings.warn(f"tidemark: {error}", RuntimeWarning, stacklevel=3)


def snapshot(path: Path) -> Optional[pathlib.Path]:
    """Writes what is allocated now to the file `path`, a trace of one instant."""
    target = pathlib.Path(os.path.abspath(path))
    if target.exists() and not target.is_file():  # a device must not be replaced by a file
        what = "a directory" if target.is_dir() else "not a regular file"
        raise Error(f"{target}: is {what}")
    if not target.parent.is_dir():
        raise Error(f"{target}: No such file or directory")
    if not _is_there():
        return None
    folder = tempfile.mkdtemp(prefix=".tidemark-", dir=target.parent)
    try:
        reply = _ask("snapshot", out=folder)
        if reply is None:
            return None
        os.replace(reply["trace"], target)
        return target
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def seal(name: Optional[str] = None, together: bool = False) -> Optional[pathlib.Path]:
    """Keeps the current window of a recording with --keep, under this name or that of the time; the
    recording goes on. With `together`, so do the other ranks of the job. Returns the sealed trace."""
    reply = _ask("seal", name=name, together=together)
    return None if reply is None else pathlib.Path(reply["trace"])


def stats() -> List[DeviceStats]:
    """The memory of every GPU that this process uses, now."""
    reply = _ask("live", torch=True) or {}

    def number(key: str) -> Optional[int]:
        return int(reply[key]) if key in reply else None

    return [DeviceStats(int(reply[f"d{i}"]), reply.get(f"d{i}_name", ""),
                        *(number(f"d{i}_{what}") for what in
                          ("total", "used", "process", "allocated", "requested", "reserved",
                           "largest_hole")))
            for i in range(int(reply.get("devices", 0)))]


def _ended(reply: Dict[str, str]) -> Recording:
    return Recording(pathlib.Path(reply["trace"]) if "trace" in reply else None,
                     int(reply.get("rows", 0)), int(reply.get("dropped", 0)))


def _arm(path: str) -> None:
    if not _library.use(path).tidemark_arm():
        raise OSError("its thread could not be started")


def _is_there() -> bool:
    """Whether the library is in this process. In one that was started with `tidemark run --arm`,
    it is loaded now if CUDA is not initialised yet."""
    if _library.find() is not None:
        return True
    injected = os.environ.get("CUDA_INJECTION64_PATH", "")
    armed = os.environ.get("TIDEMARK_ARM", "0") == "1"
    if not armed or os.path.basename(injected) != _library.NAME:
        return False
    try:
        _arm(injected)
    except OSError:
        return False
    return True


def _ask(verb: str, **values: Any) -> Optional[Dict[str, str]]:
    """Sends a request to this process's recorder and returns the values of its reply. None if the
    library is not loaded."""
    if not _is_there():
        return None
    words = [verb]
    for key, value in values.items():
        if value is not None:
            text = str(int(value)) if isinstance(value, bool) else os.fspath(value) \
                if isinstance(value, os.PathLike) else str(value)
            words.append(f"{key}={urllib.parse.quote(text, safe='/')}")
    with _connect() as client:
        try:
            client.sendall(" ".join(words).encode() + b"\n")
            reply = b""
            while not reply.endswith(b"\n"):
                piece = client.recv(65536)
                if not piece:
                    raise Error("the recorder closed the connection")
                reply += piece
        except OSError as error:
            raise Error(f"the recorder did not answer: {error}") from None
    word, _, rest = reply.decode("utf-8", "replace").rstrip("\n").partition(" ")
    if word != "ok":
        raise Error(rest)
    pairs = (pair.partition("=") for pair in rest.split())
    return {key: urllib.parse.unquote(value) for key, _, value in pairs}


def _directories() -> Iterator[str]:
    if os.environ.get("TIDEMARK_CONTROL_DIR"):
        yield os.environ["TIDEMARK_CONTROL_DIR"]
    if os.environ.get("XDG_RUNTIME_DIR"):
        yield os.path.join(os.environ["XDG_RUNTIME_DIR"], "tidemark")
    yield f"/tmp/tidemark-{os.geteuid()}"


def _connect() -> socket.socket:
    end = time.monotonic() + _SOCKET_SECONDS
    while True:
        for directory in _directories():
            client = _try(directory)
            if client is not None:
                return client
        if time.monotonic() > end:
            raise Error("the recorder does not listen: TIDEMARK_CONTROL=0, a process that was "
                        "forked, or a directory for its socket that cannot be used")
        time.sleep(0.01)


def _try(directory: str) -> Optional[socket.socket]:
    """A connection to the socket of this very process in that directory."""
    client = socket.socket(socket.AF_UNIX)
    try:
        folder = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Through the descriptor: an address has at most 107 bytes.
            client.connect(f"/proc/self/fd/{folder}/{os.getpid()}.sock")
        finally:
            os.close(folder)
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if struct.unpack("3i", credentials)[0] == os.getpid():
            client.settimeout(_ANSWER_SECONDS)
            return client
    except OSError:
        pass
    client.close()
    return None
