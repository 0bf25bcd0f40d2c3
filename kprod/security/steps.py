"""The messages of a login, which are computed inline or in another thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from kprod.errors import AuthenticationError, KprodError, SaslAuthenticationError


class Conversation(Protocol):
    """One login by one mechanism. Used by one thread at a time."""

    def respond(self, challenge: bytes | None) -> bytes | None:
        """The answer to the broker's message, or None if the login has succeeded.

        If ``challenge`` is None, returns the first message. Raises KprodError. May block if the
        mechanism is ``slow``.
        """
        ...


class Mechanism(NamedTuple):
    """A login mechanism. ``begin`` takes the broker's host. If ``slow``, ``respond`` may block."""

    name: str
    begin: Callable[[str], Conversation]
    slow: bool = False


class Message(NamedTuple):
    """``data`` for the broker, or None if the broker's last message has completed the login."""

    data: bytes | None

    def __repr__(self) -> str:
        """The text without the data, which may contain a password or a token."""
        return "Message(None)" if self.data is None else f"Message({len(self.data)} bytes)"


class Steps(Protocol):
    """Computes the messages of one login, perhaps in another thread."""

    def begin(self, challenge: bytes | None) -> None:
        """Start computing the answer to the broker's message. None asks for the first message."""
        ...

    def take(self) -> Message | None:
        """The answer, or None until it is ready. Raises AuthenticationError."""
        ...


class Begun:
    """A conversation that is created by the thread that computes its first message."""

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
    """Computes the messages in ``take``."""

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
    """Compute one step. Of an exception of another package, report only the type.

    The text or traceback of such an exception could reveal a secret.
    """
    failure: AuthenticationError
    try:
        return Message(conversation.respond(challenge))
    except AuthenticationError as error:
        failure = error
    except KprodError as error:  # an unreadable secret, for example, which ``send`` must report
        failure = SaslAuthenticationError(str(error))
    except Exception as error:
        failure = not_computed(error)
    failure.__traceback__ = None
    raise failure


def not_computed(error: BaseException) -> SaslAuthenticationError:
    """The error for a step that ended with ``error``, of which it says only the type."""
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    return SaslAuthenticationError(f"the login message could not be computed: {kind}")
