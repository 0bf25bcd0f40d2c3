"""The messages of a login, one after the other: worked out on the spot, or in another thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from kprod.errors import AuthenticationError, KprodError, SaslAuthenticationError


class Conversation(Protocol):
    """One login by one mechanism. Used by one thread at a time."""

    def respond(self, challenge: bytes | None) -> bytes | None:
        """The answer to the broker's message, None when that has ended the login well.

        ``challenge`` None asks for the first message. Raises KprodError. May take its time if the
        mechanism says so (``Mechanism.slow``).
        """
        ...


class Mechanism(NamedTuple):
    """How logins are made: ``begin`` gets the broker's host. ``slow``: they may have to wait."""

    name: str
    begin: Callable[[str], Conversation]
    slow: bool = False


class Message(NamedTuple):
    """``data`` for the broker; None when the broker's last message has ended the login."""

    data: bytes | None

    def __repr__(self) -> str:
        """Without the message, which may hold a password or a token."""
        return "Message(None)" if self.data is None else f"Message({len(self.data)} bytes)"


class Steps(Protocol):
    """Works out the messages of one login, perhaps in another thread."""

    def begin(self, challenge: bytes | None) -> None:
        """Work out the answer to the broker's message; None for the first one."""
        ...

    def take(self) -> Message | None:
        """The answer, None before it is worked out. Raises AuthenticationError."""
        ...


class Begun:
    """A conversation that is begun with its first message, in the thread that works that out."""

    def __init__(self, mechanism: Mechanism, host: str) -> None:
        self._begin = mechanism.begin
        self._host = host
        self._conversation: Conversation | None = None

    def respond(self, challenge: bytes | None) -> bytes | None:
        """See ``Conversation``."""
        if self._conversation is None:
            self._conversation = self._begin(self._host)
        return self._conversation.respond(challenge)


class InlineSteps:
    """Works them out within ``take``."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._challenge: bytes | None = None

    def begin(self, challenge: bytes | None) -> None:
        """See ``Steps``."""
        self._challenge = challenge

    def take(self) -> Message:
        """See ``Steps``."""
        return respond(self._conversation, self._challenge)


def respond(conversation: Conversation, challenge: bytes | None) -> Message:
    """One step. An exception other than kprod's is named by its type only: it may hold secrets.

    The text or the traceback of another package's error could tell the secret.
    """
    failure: AuthenticationError
    try:
        return Message(conversation.respond(challenge))
    except AuthenticationError as error:
        failure = error
    except KprodError as error:  # a secret that cannot be read: ``send`` has to be told at once
        failure = SaslAuthenticationError(str(error))
    except Exception as error:
        kind = f"{type(error).__module__}.{type(error).__qualname__}"
        failure = SaslAuthenticationError(f"the login could not be worked out: {kind}")
    failure.__traceback__ = None
    raise failure
