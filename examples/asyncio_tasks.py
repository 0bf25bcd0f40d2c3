"""Send from asyncio tasks: each awaits its own record, and none of them holds the loop.

python examples/asyncio_tasks.py --bootstrap-servers localhost:9092
"""

from __future__ import annotations

import argparse
import asyncio

from kprod.aio import Producer

TASKS = 100


async def place_order(producer: Producer, topic: str, number: int) -> int:
    """Store one order, and return its offset."""
    async with asyncio.timeout(30):
        stored = await producer.send_and_wait(topic, b"order %d" % number, key=b"%d" % number)
    return stored.offset


async def main() -> None:
    """Place orders side by side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--topic", default="orders")
    arguments = parser.parse_args()

    # Leaving the block sends what is queued, and closes the producer.
    async with Producer(bootstrap_servers=arguments.bootstrap_servers) as producer:
        orders = (place_order(producer, arguments.topic, number) for number in range(TASKS))
        offsets = await asyncio.gather(*orders)
    print(f"stored {len(offsets)} orders")


if __name__ == "__main__":
    asyncio.run(main())
