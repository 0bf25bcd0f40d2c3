"""A web service that answers once the record of a request is stored."""

from __future__ import annotations

import asyncio
import json
import sys

from aiokafka import AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError

BODIES = [b"%d" % number * 10 for number in range(20)] + [b"x" * 2_000_000]


async def handle(
    producer: AIOKafkaProducer, reader: asyncio.StreamReader, out: asyncio.StreamWriter
) -> None:
    length = int(await reader.readline())
    body = await reader.readexactly(length)
    try:
        stored = await producer.send_and_wait("requests", body, key=body[:8])
        out.write(f"202 {stored.topic}\n".encode())
    except MessageSizeTooLargeError:
        out.write(b"413\n")
    except ValueError:
        out.write(b"400\n")
    await out.drain()
    out.close()
    await out.wait_closed()


async def ask(port: int, body: bytes) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"%d\n" % len(body) + body)
    answer = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return answer.decode().strip()


async def main() -> None:
    producer = AIOKafkaProducer(bootstrap_servers=sys.argv[1], acks="all")
    await producer.start()
    server = await asyncio.start_server(
        lambda reader, writer: handle(producer, reader, writer), "127.0.0.1", 0
    )
    port = server.sockets[0].getsockname()[1]
    try:
        answers = await asyncio.gather(*(ask(port, body) for body in BODIES))
    finally:
        server.close()
        await server.wait_closed()
        await producer.stop()
    print(json.dumps(answers))


asyncio.run(main())
