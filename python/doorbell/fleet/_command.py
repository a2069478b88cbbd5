"""Runs the `doorbell` command, and reads what it prints."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any, List, Optional, Sequence


class CommandFailed(Exception):
    """The command ended without an answer. The text is its own."""


class Command:
    """The command `doorbell`, with how many bytes it has printed."""

    def __init__(self, program: str, timeout: float) -> None:
        self.program = program
        self.timeout = timeout
        self.printed = 0

    def json(self, arguments: Sequence[str], given: Any = None) -> Any:
        """One JSON value; `given` is what the command reads. A damaged recording has one up to the damage, with exit status 2."""
        done = self._done(arguments, b"" if given is None else json.dumps(given).encode())
        self.printed += len(done.stdout)
        try:
            return json.loads(done.stdout)
        except ValueError:
            raise CommandFailed(reason(done.stderr, done.returncode, arguments)) from None

    def run(self, arguments: Sequence[str]) -> None:
        """For what it leaves on the disk. A damaged recording leaves what is before the damage."""
        done = self._done(arguments)
        if done.returncode not in (0, 2):
            raise CommandFailed(reason(done.stderr, done.returncode, arguments))

    def _done(self, arguments: Sequence[str], given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        try:
            return subprocess.run([self.program, *arguments], input=given, capture_output=True, timeout=self.timeout, check=False)
        except subprocess.TimeoutExpired:
            raise CommandFailed(f"`doorbell {arguments[0]}` took more than {self.timeout:g} s") from None
        except OSError as error:
            raise CommandFailed(f"{self.program}: {error.strerror}") from None


def reason(stderr: bytes, status: int, arguments: Sequence[str]) -> str:
    """The error of the command in one line."""
    lines = stderr.decode(errors="replace").strip().splitlines()
    errors: List[str] = [line[len("error: "):] for line in lines if line.startswith("error: ")]
    if errors:
        return errors[0]
    return lines[0] if lines else f"`doorbell {arguments[0]}` ended with status {status} and printed no answer"


def find(named: Optional[str]) -> str:
    """The command that was named, or that of DOORBELL, or the one in PATH."""
    program = named or os.environ.get("DOORBELL") or "doorbell"
    found = shutil.which(program)
    if found is None:
        raise CommandFailed(f"the command {program} was not found: name it with --command, or install it")
    return os.path.abspath(found)
