"""Tokens that a coroutine of the application fetches, as aiokafka's AbstractTokenProvider has it"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from kprod.clock import in_seconds
from kprod.errors import SaslAuthenticationError

LONGEST = 30.0
"""Seconds a token may take; a loop that has ended never gives one."""


class LoopTokens:
    """Runs ``provider.token()`` in the application's loop, for the thread in which a login waits.

    There the sessions and locks of the provider belong. Without a loop each token gets one of its
    own.
    """

    def __init__(self, provider: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        self._ask = provider.token if hasattr(provider, "token") else provider
        self._loop = loop
        self.extensions = getattr(provider, "extensions", dict)

    def token(self) -> Any:
        """What the coroutine returns. Raises what it raises, SaslAuthenticationError after 30 s.

        Never in the loop's own thread, which would wait for itself.
        """
        if self._loop is None:
            return asyncio.run(asyncio.wait_for(self._ask(), LONGEST))
        if self._loop.is_closed():
            raise SaslAuthenticationError("OAUTHBEARER: the loop that token() runs in is closed")
        asked = asyncio.run_coroutine_threadsafe(self._ask(), self._loop)
        try:
            return asked.result(LONGEST)
        except TimeoutError:
            asked.cancel()
            raise SaslAuthenticationError(
                f"OAUTHBEARER: token() gave none within {in_seconds(LONGEST)}: does its loop run?"
            ) from None


def with_tokens_of_loop(
    options: dict[str, Any], loop: asyncio.AbstractEventLoop | None
) -> dict[str, Any]:
    """The options; a provider whose ``token`` is a coroutine runs it in ``loop``."""
    provider = options.get("sasl_oauth_token_provider")
    ask = getattr(provider, "token", provider)
    if not inspect.iscoroutinefunction(ask):
        return options
    return {**options, "sasl_oauth_token_provider": LoopTokens(provider, loop)}
