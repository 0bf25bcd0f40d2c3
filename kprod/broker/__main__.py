"""``python -m kprod.broker``: the embedded broker as a separate process."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

from kprod.broker.embedded_broker import EmbeddedBroker
from kprod.broker.open_files import allow_many_files
from kprod.errors import KprodError, numbered

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the broker until SIGINT, SIGTERM or SIGHUP.

    Prints ``listening on HOST:PORT`` when clients can connect. Returns 0 after a clean stop. Raises
    ``KprodError`` or ``OSError`` if the broker cannot start.
    """
    options = _parser().parse_args(arguments)
    broker = EmbeddedBroker(
        options.data_dir,
        host=options.host,
        port=options.port,
        topics=dict(options.topic),
        default_partitions=options.default_partitions,
        auto_create_topics=not options.no_auto_create,
        allow_remote=options.allow_remote,
    )
    allow_many_files()
    # Blocked before the broker starts its threads, which inherit the mask: so signals wait for
    # sigwait, and no handler interrupts other code.
    # A signal that the parent process had ignored stays ignored: SIGINT after `trap '' INT`.
    stopping = [number for number in _STOPPING if signal.getsignal(number) != signal.SIG_IGN]
    signal.pthread_sigmask(signal.SIG_BLOCK, stopping)
    with broker:
        print(f"listening on {broker.bootstrap_servers}", flush=True)
        signal.sigwait(stopping)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kprod.broker", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=9092, help="0 lets the system choose")
    parser.add_argument("--data-dir", help="directory of the log; a temporary one by default")
    parser.add_argument(
        "--topic",
        type=_topic,
        action="append",
        default=[],
        metavar="NAME:PARTITIONS",
        help="create this topic; may be repeated",
    )
    parser.add_argument("--default-partitions", type=int, default=1, help="for created topics")
    parser.add_argument(
        "--no-auto-create", action="store_true", help="do not create unknown topics"
    )
    parser.add_argument(
        "--allow-remote", action="store_true", help="accept connections from other machines"
    )
    return parser


def _topic(text: str) -> tuple[str, int]:
    name, _, partitions = text.partition(":")
    return name, int(partitions or 1)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KprodError, OSError) as error:
        sys.exit(f"kprod broker: {numbered(error)}")
