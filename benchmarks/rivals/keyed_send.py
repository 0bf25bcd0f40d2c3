"""How many keyed records a second does each client deliver, and what does one cost in CPU time?

Every run is a process of its own against a counting sink that is another one, in turns (A B C D A B
C D ...), so that a machine whose speed drifts is as unkind to one as to the others.

    python -m benchmarks.rivals.keyed_send --rounds 5 --records 1000000

prints a table and stores ``benchmarks/results/keyed-send.json``. Quote the ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.rivals.clients import CLIENTS, PACKAGES, SHARE

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "benchmarks" / "results" / "keyed-send.json"
KEYS = 1000


def main() -> None:
    """Run the comparison, or one client's turn of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=131_072)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--client", choices=CLIENTS, help="measure this one, once, and print JSON")
    parser.add_argument("--bootstrap-servers", help="with --client")
    options = parser.parse_args()
    if options.client:
        print(json.dumps(_one_turn(options)))
    else:
        _compare(options)


def _one_turn(options: argparse.Namespace) -> dict[str, float]:
    records = int(options.records * SHARE[options.client])
    keys = [b"key-%d" % (number % KEYS) for number in range(records)]
    send = CLIENTS[options.client]
    value = b"x" * options.value_bytes
    send(options.bootstrap_servers, keys[:1000], value, options.batch_size)  # imports, metadata
    cpu, started = time.process_time(), time.perf_counter()
    send(options.bootstrap_servers, keys, value, options.batch_size)
    seconds, busy = time.perf_counter() - started, time.process_time() - cpu
    return {
        "records_per_second": records / seconds,
        "megabytes_per_second": records * options.value_bytes / seconds / 1e6,
        "cpu_us_per_record": busy / records * 1e6,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _compare(options: argparse.Namespace) -> None:
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in CLIENTS}
    for _ in range(options.rounds):
        for name in CLIENTS:
            turns[name].append(_in_processes(name, options))
    figures = {name: _summary(taken) for name, taken in turns.items()}
    RESULT.write_text(json.dumps(_stored(options, figures), indent=2) + "\n")
    _show(figures)


def _in_processes(name: str, options: argparse.Namespace) -> dict[str, float]:
    serve = [sys.executable, "-m", "benchmarks.pipeline.counting_sink"]
    serve += ["--partitions", str(options.partitions)]
    sink = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert sink.stdout is not None
        address = sink.stdout.readline().strip()
        command = [sys.executable, "-m", "benchmarks.rivals.keyed_send", "--client", name]
        command += ["--bootstrap-servers", address, "--records", str(options.records)]
        command += ["--value-bytes", str(options.value_bytes)]
        command += ["--batch-size", str(options.batch_size)]
        done = subprocess.run(
            command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE, timeout=300
        )
    finally:
        sink.kill()
        sink.communicate()
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _summary(turns: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Minimum, median and maximum of every figure."""
    figures = {}
    for figure in turns[0]:
        values = [turn[figure] for turn in turns]
        figures[figure] = {
            "min": round(min(values), 3),
            "median": round(statistics.median(values), 3),
            "max": round(max(values), 3),
        }
    return figures


def _stored(options: argparse.Namespace, figures: dict[str, Any]) -> dict[str, Any]:
    head = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.check_output(head, cwd=ROOT, text=True).strip()
    return {
        "question": (__doc__ or "").splitlines()[0],
        "command": f"python -m benchmarks.rivals.keyed_send --rounds {options.rounds}"
        f" --records {options.records} --value-bytes {options.value_bytes}"
        f" --batch-size {options.batch_size} --partitions {options.partitions}",
        "commit": commit,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Linux, shared",
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {name: version(package) for name, package in PACKAGES.items()},
        "figures": figures,
        "ratios_of_medians": _ratios(figures),
    }


def _ratios(figures: dict[str, Any]) -> dict[str, dict[str, float]]:
    """kprod against each other client: records a second, and CPU time per record."""
    ours = figures["kprod"]
    return {
        name: {
            figure: round(ours[figure]["median"] / theirs[figure]["median"], 2)
            for figure in ("records_per_second", "cpu_us_per_record")
        }
        for name, theirs in figures.items()
        if name != "kprod"
    }


def _show(figures: dict[str, Any]) -> None:
    print(f"{'client':16} {'records/s':>12} {'CPU us/record':>14} {'peak RSS MB':>12}")
    for name, measured in figures.items():
        rate, cpu, rss = (
            measured[figure]["median"]
            for figure in ("records_per_second", "cpu_us_per_record", "peak_rss_mb")
        )
        print(f"{name:16} {rate:12,.0f} {cpu:14.2f} {rss:12.0f}")


if __name__ == "__main__":
    main()
