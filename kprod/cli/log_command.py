"""``kprod log``: inspects the log files of the embedded broker or Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from kprod.cli.terminal import echo
from kprod.errors import KprodError, numbered

log = typer.Typer(help="Inspect the log files of the embedded broker or Apache Kafka; read only.")


@log.command()
def dump(
    files: Annotated[
        list[Path],
        typer.Argument(
            exists=True,
            dir_okay=False,
            help="Files of a partition: .log, .index, .timeindex, .txnindex, .snapshot",
        ),
    ],
    records: Annotated[bool, typer.Option("--records", help="Also show the records.")] = False,
) -> None:
    """Print the contents of files, with one line for each batch, record or entry."""
    for path in files:
        echo(f"Dumping {path}")
        for line in _lines(path, records):
            echo(line)


def _lines(path: Path, records: bool) -> Iterator[str]:
    """The contents of a file. A failure is printed, and ends the command with exit code 1."""
    from kprod.broker.log.log_files import dump_file

    try:
        yield from dump_file(path, records=records)
    except (KprodError, OSError, ValueError) as error:
        echo(f"kprod log dump: {path}: {numbered(error)}", err=True)
        raise typer.Exit(1) from error


@log.command()
def verify(
    directories: Annotated[
        list[Path],
        typer.Argument(
            exists=True,
            file_okay=False,
            help="Directories of partitions, or a whole data directory",
        ),
    ],
) -> None:
    """Check every batch, index and snapshot. If there are problems, list them and exit with 1."""
    from kprod.broker.log.log_files import check_directory, partition_directories

    wrong = 0
    for directory in directories:
        partitions = partition_directories(directory)
        if not partitions:
            echo(f"{directory}: has no partition")
            wrong += 1
        for partition in partitions:
            found = list(check_directory(partition))
            echo(f"{partition}: {'ok' if not found else f'{len(found)} problems'}")
            for problem in found:
                echo(f"  {problem}")
            wrong += len(found)
    if wrong:
        raise typer.Exit(1)
