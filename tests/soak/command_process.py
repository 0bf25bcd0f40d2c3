"""A process that has an object, and calls its methods on command."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from tests.support.held_resources import heap_bytes

ROOT = Path(__file__).parents[2]
SPAWN = multiprocessing.get_context("spawn")


class CommandProcess:
    """Has the object ``make(**arguments)``, whose methods are the commands. Not thread-safe.

    The command ``heap`` returns ``heap_bytes`` after a garbage collection. ``output`` gets stdout
    and stderr. An exception in a command ends the process, and so does leaving the ``with`` block.
    """

    def __init__(self, make: Callable[..., Any], arguments: dict[str, Any], output: Path) -> None:
        self._pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_serve, args=(theirs, make, arguments, str(output)))
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def begin(self, command: str, **arguments: Any) -> None:
        """Start a command; call ``answer`` before the next one."""
        self._pipe.send((command, arguments))

    def answer(self) -> Any:
        """The result of the command; EOFError when the process has failed."""
        return self._pipe.recv()

    def ask(self, command: str, **arguments: Any) -> Any:
        self.begin(command, **arguments)
        return self.answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.join(60)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(
    pipe: Connection, make: Callable[..., Any], arguments: dict[str, Any], output: str
) -> None:
    log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    held = make(**arguments)
    while True:
        try:
            command, given = pipe.recv()
        except EOFError:
            break
        pipe.send(_heap() if command == "heap" else getattr(held, command)(**given))
    getattr(held, "end", lambda: None)()


def _heap() -> int:
    gc.collect()
    return heap_bytes()
