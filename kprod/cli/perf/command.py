"""The command ``kprod perf`` and its options."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer
from rich.console import Console

from kprod.cli.child_process import embedded_broker
from kprod.cli.client_options import (
    ConfigFile,
    EmbeddedServers,
    Options,
    open_producer,
    parse_options,
    take_servers,
    with_config,
)
from kprod.cli.exits import Stopped, reported_failures, stop_signals
from kprod.cli.perf.workload import Workload, letters, lines_of
from kprod.cli.terminal import complain, echo
from kprod.errors import KprodError
from kprod_ext.peer_text import escaped

if TYPE_CHECKING:
    from kprod.cli.perf.measurement import Measured


Topic: TypeAlias = Annotated[str, typer.Option(help="The topic to write to.")]
Partitions: TypeAlias = Annotated[
    int | None,
    typer.Option(min=1, help="Partitions of the embedded broker's topic; default 6."),
]
Records: TypeAlias = Annotated[int, typer.Option(min=1, help="How many records to send.")]
Size: TypeAlias = Annotated[
    int, typer.Option(min=1, max=100_000_000, help="Bytes of a value: random capital letters.")
]
PayloadFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(exists=True, dir_okay=False, help="Send the lines of this file instead."),
]
Keys: TypeAlias = Annotated[
    int, typer.Option(min=0, max=10_000_000, help="Number of different keys; 0 for none.")
]
Compression: TypeAlias = Annotated[
    Literal["none", "gzip", "snappy", "lz4", "zstd"] | None,
    typer.Option(help="Compression codec. Default: that of --config, or none."),
]
CallName: TypeAlias = Literal["send", "send_many", "send_arrow"]
Call: TypeAlias = Annotated[CallName, typer.Option(help="The method that sends.")]
Acks: TypeAlias = Annotated[
    Literal["all", "1", "0"] | None,
    typer.Option(
        help="Replicas that must store a record; 0 and 1 turn idempotence off. Default: those of"
        " --config, or all."
    ),
]
Rate: TypeAlias = Annotated[
    float | None, typer.Option(min=1, help="Records per second. Default: as many as possible.")
]
WarmUp: TypeAlias = Annotated[
    int, typer.Option(min=0, help="Records sent before the measurement starts; not counted.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print only the figures, as JSON.")]


CpuSeconds: TypeAlias = Callable[[], float | None]
LAST_SECONDS = 5.0
"""How long to wait after Ctrl-C for records that are already queued."""


def perf(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    bootstrap_servers: EmbeddedServers = None,
    topic: Topic = "kprod-perf",
    partitions: Partitions = None,
    records: Records = 1_000_000,
    size: Size = 100,
    payload_file: PayloadFile = None,
    keys: Keys = 0,
    compression: Compression = None,
    call: Call = "send",
    acks: Acks = None,
    rate: Rate = None,
    warm_up: WarmUp = 1_000,
    option: Options = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure how many records per second this machine delivers, and the cost of a record.

    Prints throughput, CPU time per record, latency percentiles, memory, batches and retries. Ctrl-C
    stops the measurement early and prints the figures so far. The exit code is 0 only if every
    record was delivered.
    """
    options = with_config(config, _options(option, acks=acks, compression=compression))
    bootstrap_servers = take_servers(options, bootstrap_servers)
    if bootstrap_servers is not None and partitions is not None:
        raise typer.BadParameter("--partitions is about the embedded broker's topic")
    if call == "send_arrow" and find_spec("pyarrow") is None:
        raise typer.BadParameter("--call send_arrow needs pyarrow: pip install pyarrow")
    workload = Workload(
        topic=topic, records=records, values=_values(payload_file, size), keys=keys, rate=rate
    )
    console = Console(stderr=as_json)
    measured, code = None, 0
    try:
        with (
            reported_failures("kprod perf"),
            stop_signals(),
            _cluster(bootstrap_servers, topic, partitions or 6) as (address, broker_cpu),
        ):
            producer = open_producer(address, options)
            measured, code = _measure(producer, broker_cpu, workload, call, warm_up, console)
    except Stopped as stopped:  # maybe while the embedded broker stopped
        code = code or stopped.exit_code
    if measured is None:
        raise typer.Exit(code)
    _show(measured, console, as_json=as_json)
    raise typer.Exit(code or int(measured.failed + measured.pending > 0))


def _measure(
    producer: Any,
    broker_cpu: CpuSeconds,
    workload: Workload,
    call: str,
    warm_up: int,
    console: Console,
) -> tuple[Measured, int]:
    """The figures, and the exit code: 0, or that of a signal or an error during the run."""
    from kprod.cli.perf.display import live_progress
    from kprod.cli.perf.measurement import Measurement

    try:
        measurement = Measurement(producer, workload, call, warm_up, broker_cpu)
    except BaseException:
        producer.close(0)
        raise
    try:
        with live_progress(console, workload.records) as progress:
            measured = measurement.run(progress)
        producer.close()
    except Stopped as stopped:
        return measurement.so_far(LAST_SECONDS), stopped.exit_code
    except KprodError as error:
        complain(f"kprod perf: {error.with_number()}")
        return measurement.so_far(LAST_SECONDS), 1
    return measured, 0


@contextmanager
def _cluster(
    bootstrap_servers: str | None, topic: str, partitions: int
) -> Iterator[tuple[str, CpuSeconds]]:
    """The address, and a function that returns the CPU seconds of an embedded broker, or None."""
    if bootstrap_servers is not None:
        yield bootstrap_servers, lambda: None
        return
    with embedded_broker(topic, partitions) as broker:
        yield broker.address(), broker.cpu_seconds


def _values(payload_file: Path | None, size: int) -> list[bytes]:
    if payload_file is None:
        return letters(size)
    try:
        return lines_of(payload_file)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _options(
    texts: list[str] | None, *, acks: str | None, compression: str | None
) -> dict[str, Any]:
    idempotent = False if acks in ("0", "1") else None
    options = {"acks": acks, "enable_idempotence": idempotent, "compression_type": compression}
    given = {name: value for name, value in options.items() if value is not None}
    return given | parse_options(texts, "-X")


def _show(measured: Measured, console: Console, *, as_json: bool) -> None:
    if as_json:
        echo(json.dumps(measured.as_json()))
        return
    from kprod.cli.perf.display import table_of

    console.print(table_of(measured))
    if measured.first_error is not None:
        console.print(f"The first failure seen: {escaped(measured.first_error)}", markup=False)
