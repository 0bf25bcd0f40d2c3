"""The options of kprod perf: what each takes, and what --help says of it."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer


class Codec(Enum):
    """What ``--compression`` takes."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(Enum):
    """What ``--acks`` takes."""

    ALL = "all"
    LEADER = "1"
    NOBODY = "0"


class CallName(Enum):
    """What ``--call`` takes: the keys of ``calls.CALLS``."""

    SEND = "send"
    SEND_MANY = "send_many"
    SEND_ARROW = "send_arrow"


BootstrapServers: TypeAlias = Annotated[
    str | None,
    typer.Option(help="A Kafka to write to. Without it: an embedded broker is started."),
]
Topic: TypeAlias = Annotated[str, typer.Option(help="Where the records go.")]
Partitions: TypeAlias = Annotated[
    int | None,
    typer.Option(min=1, help="Partitions of the embedded broker's topic; 6 without this."),
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
    int, typer.Option(min=0, max=10_000_000, help="Different keys; 0 for none.")
]
Compression: TypeAlias = Annotated[Codec, typer.Option(help="Codec of the batches.")]
CallOption: TypeAlias = Annotated[CallName, typer.Option(help="The call that sends.")]
AcksOption: TypeAlias = Annotated[
    Acks, typer.Option(help="Who has to have a record; less than all is not idempotent.")
]
Rate: TypeAlias = Annotated[
    float | None, typer.Option(min=1, help="Records a second. Without it: all that will go.")
]
WarmUp: TypeAlias = Annotated[
    int, typer.Option(min=0, help="Records sent before the clock starts, and not counted.")
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print the figures as JSON, and nothing else.")
]
