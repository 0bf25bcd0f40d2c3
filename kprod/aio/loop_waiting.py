"""Waiting in an asyncio loop for what other threads do, without holding the loop"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


async def in_thread(call: Callable[[], _T], name: str) -> _T:
    """Run ``call`` in a thread of its own and wait for it.

    Not in the loop's executor: a few calls that wait for a broker would occupy all its threads, and
    the interpreter's exit would wait for them. Cancelling ends the wait, not the call.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[_T] = loop.create_future()

    def run() -> None:
        try:
            value = call()
        except BaseException as error:
            tell(loop, outcome, None, error)
        else:
            tell(loop, outcome, value, None)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await outcome


def tell(
    loop: asyncio.AbstractEventLoop,
    outcome: asyncio.Future[_T],
    value: _T | None,
    error: BaseException | None,
) -> None:
    """Settle ``outcome`` from any thread; nothing happens when the loop is closed by now."""

    def settle() -> None:
        if outcome.done():  # cancelled
            return
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(value)  # type: ignore[arg-type]

    call_soon(loop, settle)


def call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Run ``callback`` in ``loop``, from any thread, unless the loop is closed."""
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        if not loop.is_closed():
            raise
