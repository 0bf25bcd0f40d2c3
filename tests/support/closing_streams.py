"""Ending asyncio streams for certain: nothing of them is left when their loop ends."""

from __future__ import annotations

import asyncio
import contextlib

PATIENCE = 1.0


async def close_streams(*writers: asyncio.StreamWriter) -> None:
    """Close each one, with what it still has to deliver; at once, when we are cancelled.

    A transport that is still closing when its loop is gone complains whenever it is collected, in
    the middle of some other test.
    """
    try:
        for writer in writers:
            writer.close()
        await _closed(writers)
    except asyncio.CancelledError:
        abort_streams(*writers)
        await _closed(writers)
        raise


def abort_streams(*writers: asyncio.StreamWriter) -> None:
    """Let nothing that is still to be delivered hold up ``close_streams``."""
    for writer in writers:
        writer.transport.abort()


async def end_tasks(tasks: set[asyncio.Task[None]]) -> None:
    """Wait a moment for tasks whose peers have gone, then cancel those that are left.

    One that is cancelled while it opens a connection cannot close it: it does not have it yet.
    """
    if tasks:
        _, left = await asyncio.wait(tasks, timeout=PATIENCE)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def _closed(writers: tuple[asyncio.StreamWriter, ...]) -> None:
    for writer in writers:
        with contextlib.suppress(OSError):
            await writer.wait_closed()
