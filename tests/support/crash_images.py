"""Copies a directory before every rename, removal, truncation and creation of a file."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

_EVENTS: Final = {"os.rename", "os.remove", "os.truncate", "open"}
_recorders: list[_Recorder] = []
_hooked: list[bool] = []


class _Recorder:
    def __init__(self, directory: Path, images: Path) -> None:
        self._directory = directory
        self._images = images
        self._thread = threading.get_ident()
        self._busy = False
        self.found: list[Path] = []

    def record(self, event: str, args: tuple[Any, ...]) -> None:
        """Copy the directory before the event, if this thread causes it."""
        if self._busy or threading.get_ident() != self._thread:  # brokers of other tests may run
            return
        if event == "open" and not self._creates(args):
            return
        self._busy = True
        try:
            image = self._images / f"{len(self.found):05d}"
            shutil.copytree(self._directory, image)
            self.found.append(image)
        finally:
            self._busy = False

    def _creates(self, args: tuple[Any, ...]) -> bool:
        path = args[0]
        return isinstance(path, str | Path) and str(path).startswith(str(self._directory))


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if event in _EVENTS:
        for recorder in _recorders:
            recorder.record(event, args)


@contextmanager
def crash_images(directory: Path, images: Path) -> Iterator[list[Path]]:
    """Copies of ``directory`` under ``images``, one before each change within the block.

    Writes to open files are not seen; tests create torn writes from a copy.
    """
    if not _hooked:
        sys.addaudithook(_hook)
        _hooked.append(True)
    recorder = _Recorder(directory, images)
    _recorders.append(recorder)
    try:
        yield recorder.found
    finally:
        _recorders.remove(recorder)
