"""What is told of a connection that ended, and what must not be kept of it."""

from __future__ import annotations

from kprod.cluster.snapshot import Broker
from kprod.errors import (
    AuthenticationError,
    ConnectionLost,
    KprodError,
    ProtocolError,
    UnsupportedVersionError,
)


def as_lost(error: KprodError) -> KprodError:
    """What the requests of a connection are told that ended because of ``error``.

    That the broker will not know us any more is about the next connection: they go out again on it.
    """
    if not isinstance(error, AuthenticationError):
        return error
    lost = ConnectionLost(str(error))
    lost.__cause__ = error
    return lost


def silenced(broker: Broker, seconds: float) -> str:
    """How long a broker is to be left alone."""
    return f"{broker} asks for {seconds:.3g} s without requests (throttle_time_ms)"


def slow_setup(seconds: float, progress: str) -> ConnectionLost:
    """No connection in that time; ``progress`` tells what it waits for, if anything is known."""
    return ConnectionLost(f"not connected after {seconds:.3g} s" + (progress and f": {progress}"))


def silent_setup(seconds: float, *, logs_in: bool, waits_for_us: bool) -> ConnectionLost:
    """A connection, and then nothing. ``waits_for_us``: a message of the login is not ready yet."""
    limit = f"within {seconds:.3g} s of connecting"
    if waits_for_us:
        return ConnectionLost(
            f"what logs us in was not ready {limit}: does the token's provider answer, or Kerberos?"
        )
    login = " or to our login" if logs_in else ""
    return ConnectionLost(f"no answer to ApiVersions{login} {limit}: is it a Kafka broker?")


def forget_frames(error: BaseException | None) -> None:
    """Drop the tracebacks: their frames hold the views that were being written.

    The error lives as long as someone may ask why; the memory of a batch must not.
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def named(error: Exception, broker: Broker, *, new: bool) -> KprodError:
    """It, with the broker's name; what is not ours (a bug in a transport) is a lost connection.

    ``new``: the connection has been of no use yet.
    """
    explained: KprodError
    if isinstance(error, (AuthenticationError, ProtocolError, UnsupportedVersionError)):
        explained = type(error)(f"{broker}: {error}")
    elif isinstance(error, KprodError) and not isinstance(error, ConnectionLost):
        return error
    else:
        explained = ConnectionLost(f"{broker}: {error}{port_hint(error) if new else ''}")
    explained.__cause__ = error.__cause__ or error
    return explained


def port_hint(error: Exception) -> str:
    """A port that expects something else ends connections that begin as ours does."""
    told = "security_protocol" in str(error)
    return "" if told else "; does this port expect TLS or a login? see security_protocol"
