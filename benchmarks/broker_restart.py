"""How long the embedded broker takes to start on a large log, and after a kill.

Run as ``python -m benchmarks.broker_restart [--gigabytes N]``. A broker, a process of its own, is
filled with batches of 256 KiB over six partitions, stopped, started, killed with SIGKILL and
started again. A start is over when every partition answers where its log ends. Beside it stands how
long it takes to read the files that a start after a kill has to check: those of the segments that
were not yet flushed.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.provenance import command_line, provenance
from benchmarks.result_file import write_result
from kprod import KafkaProducer
from kprod.admin import create_topic, end_offsets

TOPIC: Final = "restart"
PARTITIONS: Final = 6
SIZE: Final = 1000
BLOCK: Final = 1000
BATCH: Final = 256 * 1024
GIGABYTE: Final = 10**9
CHUNK: Final = 1 << 20


class Server:
    """The broker's process; the log outlives it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.address = ""

    def start(self) -> None:
        """Returns once it takes connections."""
        command = [sys.executable, "-m", "kprod.broker", "--port", "0"]
        self._process = subprocess.Popen(
            [*command, "--data-dir", str(self._folder)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().split()[-1]

    def end(self, how: signal.Signals) -> float:
        """Seconds that it took to end."""
        assert self._process is not None
        started = time.perf_counter()
        self._process.send_signal(how)
        self._process.wait()
        return time.perf_counter() - started


def fill(address: str, size: int) -> None:
    """Write so many bytes of values."""
    block = [b"x" * SIZE] * BLOCK
    with KafkaProducer(bootstrap_servers=address, batch_size=BATCH) as producer:
        for _ in range(size // (SIZE * BLOCK)):
            producer.send_many(TOPIC, block)
        assert producer.flush().failed == 0


def started(server: Server) -> tuple[float, dict[int, int]]:
    """Seconds until every partition is served, and where each ends."""
    begun = time.perf_counter()
    server.start()
    ends = end_offsets(server.address, TOPIC)
    return time.perf_counter() - begun, ends


def reading(files: list[Path]) -> float:
    """Seconds that reading them takes."""
    begun = time.perf_counter()
    for file in files:
        with file.open("rb", buffering=0) as stream:
            while stream.read(CHUNK):
                pass
    return time.perf_counter() - begun


def measure(folder: Path, size: int) -> dict[str, float]:
    """Seconds of each step, and bytes."""
    server = Server(folder)
    server.start()
    try:
        create_topic(server.address, TOPIC, PARTITIONS)
        fill(server.address, size)
        ends = end_offsets(server.address, TOPIC)
        segments = [file.stat().st_size for file in folder.glob(f"{TOPIC}-*/*.log")]
        stop = server.end(signal.SIGTERM)
        clean, found = started(server)
        assert found == ends, (found, ends)
        # As much again as a segment holds at most is not flushed when it is killed.
        fill(server.address, size // 10)
        ends = end_offsets(server.address, TOPIC)
        newest = [max(group.glob("*.log")) for group in folder.glob(f"{TOPIC}-*")]
        server.end(signal.SIGKILL)
        killed, found = started(server)
        assert found == ends, (found, ends)
        return {
            "bytes": sum(segments),
            "segments": len(segments),
            "stop_seconds": stop,
            "clean_start_seconds": clean,
            "start_after_kill_seconds": killed,
            "newest_segments_bytes": sum(file.stat().st_size for file in newest),
            "reading_newest_segments_seconds": reading(newest),
        }
    finally:
        server.end(signal.SIGKILL)


def main() -> None:
    """Measure and store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--folder", type=Path, help="where there is room; a temporary one if not")
    options = parser.parse_args()
    origin = provenance()
    with tempfile.TemporaryDirectory(prefix="kprod-restart-", dir=options.folder) as folder:
        found = measure(Path(folder), int(options.gigabytes * GIGABYTE))
    for name, value in found.items():
        print(f"{name:<34}{value:,.2f}")
    write_result(
        "broker-restart",
        question="How long does the embedded broker take to start on a large log?",
        command=command_line("benchmarks.broker_restart"),
        origin=origin,
        settings={"gigabytes": options.gigabytes, "value_bytes": SIZE},
        figures=found,
    )


if __name__ == "__main__":
    main()
