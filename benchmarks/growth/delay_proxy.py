"""A long line: bytes arrive as they were sent, so many milliseconds later, as many as one likes.

    python -m benchmarks.growth.delay_proxy 20

prints the port it listens at, reads from standard input the port that it connects to, and passes on
until its standard input ends. 20 is the time of a round: half of it each way.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque

PIECE = 256 * 1024


async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter, delay: float) -> None:
    """Read as fast as there is something; write each piece ``delay`` seconds after it came."""
    loop = asyncio.get_running_loop()
    pieces: deque[tuple[float, bytes]] = deque()
    came = asyncio.Event()

    async def write() -> None:
        while True:
            while not pieces:
                came.clear()
                await came.wait()
            due, piece = pieces.popleft()
            await asyncio.sleep(due - loop.time())
            if not piece:
                target.close()
                return
            target.write(piece)

    writing = asyncio.create_task(write())
    piece = b"-"
    while piece:
        try:
            piece = await source.read(PIECE)
        except ConnectionError:
            piece = b""
        pieces.append((loop.time() + delay, piece))
        came.set()
    await writing


async def serve(round_ms: float) -> None:
    """Print the port, ask for the one to connect to, pass on until standard input ends."""
    delay = round_ms / 2000
    ports: list[int] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", ports[0], limit=PIECE)
        await asyncio.gather(pass_on(reader, far_writer, delay), pass_on(far_reader, writer, delay))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=PIECE)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    ports.append(int(await loop.run_in_executor(None, sys.stdin.readline)))
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
