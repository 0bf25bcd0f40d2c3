"""A WSGI application whose producer is used before the server forks its workers."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable

from kprod import KafkaProducer

producer = KafkaProducer(bootstrap_servers=os.environ["KPROD_BROKER"])
producer.send("answers", b"loaded").get(timeout=30)


def answer(name: str) -> str:
    """Store a record; the process id, the record and its offset."""
    stored = producer.send("answers", name.encode()).get(timeout=30)
    return f"{os.getpid()} {name} {stored.offset}"


def application(environ: dict[str, str], start: Callable[..., object]) -> list[bytes]:
    """Answer with the path as the record's name."""
    body = answer(environ["PATH_INFO"].removeprefix("/"))
    start("200 OK", [("Content-Type", "text/plain")])
    return [body.encode()]


if __name__ == "__main__":  # a pool of processes is the server
    from tests.support import forked_server  # noqa: PLW0406  (as workers know it)

    context = multiprocessing.get_context(sys.argv[1])
    context.set_forkserver_preload([forked_server.__name__])
    all_started = context.Barrier(4)  # else the first worker may answer everything
    with context.Pool(4, all_started.wait, (60,)) as pool:
        names = [f"request-{number}" for number in range(int(sys.argv[2]))]
        print("\n".join(pool.map(forked_server.answer, names, chunksize=5)))
        pool.close()
        pool.join()
