"""A process that holds an object, and calls its methods when it is told to."""

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
    """Holds ``make(**arguments)``, whose methods are the commands. Thread: one.

    Beside them, ``heap`` tells what the process has allocated (``heap_bytes``), without what the
    garbage collector would free. ``output`` takes what the process says. What a command raises ends
    the process, with its traceback there. So does leaving the ``with`` block.
    """

    def __init__(self, make: Callable[..., Any], arguments: dict[str, Any], output: Path) -> None:
        self._pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_serve, args=(theirs, make, arguments, str(output)))
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process.pid is not None
        return self._process.pid

    def begin(self, command: str, **arguments: Any) -> None:
        """Tell it to do something; ``answer`` has to be called before the next command."""
        self._pipe.send((command, arguments))

    def answer(self) -> Any:
        """Wait for the end of what was begun; EOFError when the process has failed."""
        return self._pipe.recv()

    def ask(self, command: str, **arguments: Any) -> Any:
        """Do something, and return what it came to."""
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
    for told in (1, 2):
        os.dup2(log, told)
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
