"""Recording. The recorder's library is preloaded: it must be in the program before its first thread and before CUDA, and cannot be
added to a running program. So a program is recorded from its start, or not at all."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ._errors import Unavailable
from ._library import check, library


def _say(function: Callable[..., int]) -> bool:
    recorded = ctypes.c_bool()
    check(function(ctypes.byref(recorded)))
    return recorded.value


def recording() -> bool:
    """Whether this program is recorded: it was started under `doorbell record`."""
    return _say(library.doorbell_recording_get)


def pause() -> bool:
    """Pauses the recording of this program, for all its threads. Returns whether it is recorded. If not, the call has no effect."""
    return _say(library.doorbell_recording_pause)


def resume() -> bool:
    """Resumes the recording, after pause() or after the pause with which `doorbell record --capture` begins."""
    return _say(library.doorbell_recording_resume)


def _command(path: str | os.PathLike[str]) -> list[str]:
    program = getattr(sys, "orig_argv", None) or [sys.executable, *sys.argv]
    return ["doorbell", "record", "-o", os.fspath(path), "--", *program]


@contextmanager
def record(path: str | os.PathLike[str], *, restart: bool = False) -> Iterator[None]:
    """`with doorbell.record("x.doorbell"):` asserts that this program is recorded.

    A running program cannot begin to be recorded. If it was started under `doorbell record -o x.doorbell python ...`, this has no
    effect: the recording is of the whole program, in the file that the command named. Otherwise it raises Unavailable with the
    command. With restart=True it replaces the program by itself under the recorder: all of it runs again from the start, so use
    this before the program does anything else.
    """
    if not recording():
        command = _command(path)
        if not restart:
            import shlex
            raise Unavailable("a running program cannot begin to be recorded; start it so: " + shlex.join(command))
        if shutil.which("doorbell") is None:
            raise Unavailable("the command doorbell is not in PATH")
        sys.stdout.flush()
        sys.stderr.flush()
        os.execvp(command[0], command)
    yield
