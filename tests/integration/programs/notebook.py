"""A notebook: cells run within a loop that runs already, and Ctrl-C ends one of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Callable

from kafka import KafkaProducer

noticed: list[object] = []
sent: list[bytes] = []
producer = KafkaProducer(bootstrap_servers=sys.argv[1])


def send_for_ever() -> None:
    interrupt = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    try:
        while True:
            value = b"%d" % len(sent)
            producer.send("cells", value).get(timeout=30)
            sent.append(value)
    except KeyboardInterrupt:
        noticed.append("interrupted")


def send_again() -> None:
    stored = [producer.send("again", b"%d" % number).get(timeout=30) for number in range(3)]
    noticed.append([one.topic for one in stored])


def end() -> None:
    producer.flush(timeout=30)
    producer.close()
    noticed.append(bool(sent))


async def kernel(cells: list[Callable[[], None]]) -> None:
    for cell in cells:
        cell()
        await asyncio.sleep(0)


signal.signal(signal.SIGINT, signal.default_int_handler)
loop = asyncio.new_event_loop()
loop.run_until_complete(kernel([send_for_ever, send_again, end]))
loop.close()
print(json.dumps(noticed))
