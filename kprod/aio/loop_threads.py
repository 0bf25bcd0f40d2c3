"""Calls between an asyncio loop and other threads. They do not block the loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from kprod.config.reading import option_name
from kprod.errors import SaslAuthenticationError
from kprod.quantities import in_seconds

_T = TypeVar("_T")


async def in_thread(call: Callable[[], _T], name: str) -> _T:
    """Run ``call`` in a new thread and wait for it.

    The loop's executor is not used: a few calls that wait for a broker would occupy all its
    threads, and the interpreter would wait for them at exit. Cancelling the task ends the wait, but
    not the call.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[_T] = loop.create_future()

    def settle(set_outcome: Callable[[Any], object], value: object) -> None:
        if not outcome.done():  # not cancelled
            set_outcome(value)

    def run() -> None:
        try:
            settled = partial(settle, outcome.set_result, call())
        except BaseException as error:
            settled = partial(settle, outcome.set_exception, error)
        call_soon(loop, settled)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await outcome


def call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Run ``callback`` in ``loop``, from any thread, unless the loop is closed."""
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        if not loop.is_closed():
            raise


LONGEST = 30.0
"""Seconds to wait for a token; a loop that has ended never returns one."""


class LoopTokens:
    """Runs ``provider.token()`` in the application's loop, for the thread that logs in.

    The provider's sessions and locks belong to that loop. Without a loop, each call runs in a new
    loop.
    """

    def __init__(self, provider: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        self._ask = provider.token if hasattr(provider, "token") else provider
        self._loop = loop
        self.extensions = getattr(provider, "extensions", dict)

    def token(self) -> Any:
        """The coroutine's result. Raises its exception, and SaslAuthenticationError after 30 s.

        Do not call it in the loop's own thread, which would then wait for itself.
        """
        if self._loop is None:
            return asyncio.run(asyncio.wait_for(self._ask(), LONGEST))
        if self._loop.is_closed():
            raise SaslAuthenticationError("OAUTHBEARER: the loop that token() runs in is closed")
        asked = asyncio.run_coroutine_threadsafe(self._ask(), self._loop)
        try:
            return asked.result(LONGEST)
        except TimeoutError:
            if asked.done():  # the provider's own time-out, not ours
                raise
            asked.cancel()
            raise SaslAuthenticationError(
                f"OAUTHBEARER: token() returned nothing within {in_seconds(LONGEST)}: is its event"
                " loop running?"
            ) from None


def with_tokens_of_loop(
    options: dict[str, Any], loop: asyncio.AbstractEventLoop | None
) -> dict[str, Any]:
    """The options. If a token provider's ``token()`` is a coroutine, it will run in ``loop``."""
    changed = dict(options)
    for name, provider in options.items():
        ask = getattr(provider, "token", provider)
        if option_name(name) == "sasl_oauth_token_provider" and inspect.iscoroutinefunction(ask):
            changed[name] = LoopTokens(provider, loop)
    return changed
