"""A process that is told what to do by lines of JSON, and answers each by a line of JSON."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tests.support.held_resources import heap_bytes

ROOT = Path(__file__).parents[2]
Command = Callable[..., Any]


class CommandProcess:
    """Runs ``python -m module``, which calls ``serve``. Thread: one.

    ``output`` takes what the process says on stderr. Leaving the ``with`` block closes its input,
    which ends it.
    """

    def __init__(self, module: str, arguments: Any, output: IO[str]) -> None:
        command = [sys.executable, "-m", module, json.dumps(arguments)]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def begin(self, command: str, **arguments: Any) -> None:
        """Tell it to do something; ``answer`` has to be called before the next command."""
        assert self._process.stdin is not None
        print(json.dumps([command, arguments]), file=self._process.stdin, flush=True)

    def answer(self) -> Any:
        """Wait for the end of what was begun; AssertionError when the process has failed."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the process has ended with {self._process.wait(30)}: see its output"
        return json.loads(line)

    def ask(self, command: str, **arguments: Any) -> Any:
        """Do something, and return what it came to."""
        self.begin(command, **arguments)
        return self.answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def serve(commands: Mapping[str, Command]) -> None:
    """Answer the lines on standard input until it ends.

    Beside ``commands``, ``heap`` tells what the process has allocated (``heap_bytes``), without
    what the garbage collector would free. What a command raises ends the process, with its
    traceback on stderr.
    """
    commands = {"heap": _heap, **commands}
    answers, sys.stdout = sys.stdout, sys.stderr  # what libraries print must not be an answer
    for line in sys.stdin:
        name, arguments = json.loads(line)
        print(json.dumps(commands[name](**arguments)), file=answers, flush=True)


def _heap() -> int:
    gc.collect()
    return heap_bytes()
