"""The kinds of option values: what each kind accepts, and how it is stored."""

from __future__ import annotations

import inspect
import math
import operator
import os
import re
import reprlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from kprod.config.secret import Secret, exposed

LONGEST = 80
MOST_INT_BITS = 256


class _Shortened(reprlib.Repr):
    """Like ``reprlib.Repr``, it tolerates a ``__repr__`` that raises.

    It shortens huge numbers and bytes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = LONGEST

    def repr_int(self, x: int, level: int) -> str:
        return super().repr_int(x, level) if x.bit_length() <= MOST_INT_BITS else "<a huge integer>"

    def repr_bytes(self, x: bytes, level: int) -> str:
        return repr(x) if len(x) <= LONGEST else f"{x[:LONGEST]!r}... ({len(x)} bytes)"

    def repr_bytearray(self, x: bytearray, level: int) -> str:
        return f"bytearray({self.repr_bytes(bytes(x[: LONGEST + 1]), level)})"


_shortened = _Shortened()


def safe_repr(value: object) -> str:
    """The value and its type, in about a line at most: ``'5' (str)``, ``None``."""
    if value is None:
        return "None"
    return f"{_shortened.repr(value)} ({type(value).__name__})"


MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
_NOTHING: Mapping[Any, Any] = MappingProxyType({})


class Refused(Exception):
    """The value is invalid; the text, if any, gives the reason in addition to "expected ..."."""


class Kind(Protocol):
    """A kind of value. Instances are immutable and may be shared."""

    @property
    def type_name(self) -> str:
        """A short name for the table of options: ``int``, ``bool``."""
        ...

    @property
    def expected(self) -> str:
        """A description of the accepted values, to follow "expected"."""
        ...

    def convert(self, value: Any) -> Any:
        """The value as the configuration stores it. Raises Refused."""
        ...


class WholeNumber(NamedTuple):
    """An integer in ``[low, high]``. Accepts floats that are whole numbers, but not True and False.

    ``instead`` maps special values, which need not be in the range, to the stored values.
    """

    low: int
    high: int = MAX_INT32
    unit: str = ""
    instead: Mapping[Any, Any] = _NOTHING

    @property
    def type_name(self) -> str:
        return "int or None" if None in self.instead else "int"

    @property
    def expected(self) -> str:
        unit = f" of {self.unit}" if self.unit else ""
        outside = [f", or {value}" for value in self.instead if value != self.low]
        return f"a whole number{unit} from {self.low} to {self.high}{''.join(outside)}"

    def convert(self, value: Any) -> Any:
        number = None if value is None else _whole(value)
        if number in self.instead:
            return self.instead[number]
        if number is None or not self.low <= number <= self.high:
            raise Refused
        return number


def _whole(value: Any) -> int | float:
    """The value as an integer; infinity is unchanged, because some options accept it."""
    if isinstance(value, float):
        if not value.is_integer() and not math.isinf(value):
            raise Refused
        return value if math.isinf(value) else int(value)
    if isinstance(value, bool):
        raise Refused
    try:
        return operator.index(value)
    except TypeError:
        raise Refused from None


class Truth:
    """True or False. Other truthy or falsy values are refused."""

    type_name = "bool"
    expected = "True or False"

    def convert(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise Refused
        return value


class Choice(NamedTuple):
    """One of a few spellings, stored as the value it stands for. Text is compared in lower case."""

    meanings: Mapping[Any, Any]
    type_name: str
    expected: str

    def convert(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, str | int | None):
            raise Refused
        spelled = value.strip().lower() if isinstance(value, str) else value
        if spelled not in self.meanings:
            raise Refused
        return self.meanings[spelled]


class ProtocolText(NamedTuple):
    """Text that fits Kafka's protocol, or None. ``least`` is the minimum number of bytes."""

    least: int = 0
    type_name: str = "str or None"

    @property
    def expected(self) -> str:
        size = f"{self.least} to" if self.least else "at most"
        return f"text of {size} 32767 bytes in UTF-8, or None"

    def convert(self, value: Any) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str) or len(value) < self.least:
            raise Refused
        try:
            size = len(value.encode())
        except UnicodeEncodeError as error:
            raise Refused(f"it cannot be encoded as UTF-8: {error.reason}") from None
        if size > 2**15 - 1:
            raise Refused(f"it has {size} bytes")
        return value or None


class SecretText:
    """Text, or a callable that returns it; stored as a ``Secret``."""

    type_name = "str, callable or None"
    expected = (
        "text, a callable that returns it (kprod.security.FromFile, FromEnvironment), or None"
    )

    def conceals(self, value: Any) -> bool:
        """Whether ``value`` is itself a secret; a callable is not."""
        return not callable(value)

    def convert(self, value: Any) -> Secret | None:
        source = exposed(value)
        if source is None:
            return None
        if isinstance(source, type) or not (isinstance(source, str) or callable(source)):
            raise Refused
        if source == "":
            raise Refused("it is empty")
        return value if isinstance(value, Secret) else Secret(source)


TLS_VERSIONS = {"tlsv1.2": "TLSv1.2", "tlsv1.3": "TLSv1.3"}
"""The oldest version first."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]{0,32765}[a-zA-Z0-9])?")
_PAIR = re.compile(r"([A-Za-z]+)=([\x20-\x7e\t\r\n]*)")


class Text:
    """Text that is not empty, or None."""

    type_name = "str or None"

    def __init__(self, expected: str) -> None:
        self.expected = f"{expected}, or None"

    def convert(self, value: Any) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            raise Refused
        return value


class SoftwareText(Text):
    """A name or version of client software that brokers accept (KIP-511), or None."""

    def __init__(self) -> None:
        super().__init__("letters and digits, with dots and hyphens between them")

    def convert(self, value: Any) -> str | None:
        text = super().convert(value)
        if text is not None and not _SOFTWARE.fullmatch(text):
            raise Refused
        return text


class Url(Text):
    """A URL that may contain a password, in its user part or in its query."""

    def conceals(self, value: Any) -> bool:
        """Whether the URL seems to contain a password."""
        return not isinstance(value, str) or "@" in value or "?" in value

    def convert(self, value: Any) -> Any:
        super().convert(exposed(value))
        return value


class PathOrText(Text):
    """The path of a file, or its PEM content."""

    type_name = "str, path or None"

    def conceals(self, value: Any) -> bool:
        """Whether ``value`` is PEM content, not a path."""
        return not isinstance(value, os.PathLike) and not (
            isinstance(value, str) and not is_pem(value)
        )

    def convert(self, value: Any) -> Any:
        given = exposed(value)
        text = super().convert(os.fsdecode(given) if isinstance(given, os.PathLike) else given)
        return value if isinstance(value, Secret) else text


def is_pem(source: str) -> bool:
    """Whether ``source`` is PEM text, not the path of a file."""
    return "-----BEGIN " in source or "\n" in source


_OLD_VERSIONS = ("sslv2hello", "sslv3", "tlsv1", "tlsv1.1")


class TlsVersions:
    """TLS versions as Java lists them, stored in order; versions that are too old are ignored."""

    type_name = "list of str, str or None"
    expected = '"TLSv1.2", "TLSv1.3", both of them in a list or joined by a comma, or None'

    def convert(self, value: Any) -> tuple[str, ...] | None:
        if value is None:
            return None
        names = value.split(",") if isinstance(value, str) else value
        if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
            raise Refused
        wanted = {name.strip().lower(): name for name in names}
        for name in wanted.keys() - {*_OLD_VERSIONS, *TLS_VERSIONS}:
            raise Refused(f"got {safe_repr(wanted[name])}")
        found = tuple(kept for name, kept in TLS_VERSIONS.items() if name in wanted)
        if not found:
            raise Refused("it contains none of these")
        return found


class HostnameCheck:
    """True or False, or a value of ``endpoint.identification.algorithm`` (Java, librdkafka)."""

    type_name = "bool"
    expected = 'True or False; also "https" and "none"'

    def convert(self, value: Any) -> bool:
        if isinstance(value, bool):
            return value
        words = {"https": True, "true": True, "none": False, "false": False, "": False}
        if not isinstance(value, str) or value.strip().lower() not in words:
            raise Refused
        return words[value.strip().lower()]


class Plugged:
    """An object of the application that has the given methods, or None."""

    def __init__(self, type_name: str, expected: str, *methods: str) -> None:
        self.type_name = f"{type_name} or None"
        self.expected = f"{expected}, or None"
        self._methods = methods

    def convert(self, value: Any) -> Any:
        if value is None:
            return None
        has = any(callable(getattr(value, method, None)) for method in self._methods)
        if isinstance(value, type):
            raise Refused("it is a class: pass an instance")
        if not has:
            raise Refused
        return value


class Extensions:
    """Names and values sent with a token (KIP-342), stored as a tuple of pairs."""

    type_name = "dict, str or None"
    expected = 'a dict of str, "name=value,name=value", or None'

    def convert(self, value: Any) -> tuple[tuple[str, str], ...]:
        if value is None or value == "":
            return ()
        if isinstance(value, str):
            value = dict(_halves(pair) for pair in value.split(","))
        if not isinstance(value, Mapping):
            raise Refused
        for name, text in value.items():
            if not isinstance(name, str) or not isinstance(text, str):
                raise Refused
            if name == "auth" or not _PAIR.fullmatch(f"{name}={text}"):
                raise Refused(f"{name!r} is not an extension that RFC 7628 allows")
        return tuple(value.items())


def _halves(pair: str) -> tuple[str, str]:
    name, equals, text = pair.strip().partition("=")
    if not equals:
        raise Refused
    return name, text


INTERCEPTOR_HOOKS = ("on_send", "on_acknowledgement", "on_send_error")
SERIALIZERS = ("bytes", "str", "json", "int", "int32", "float")
PARTITIONERS = MappingProxyType(
    {
        "default": "default",
        "murmur2": "default",
        "murmur2_random": "default",
        "crc32": "crc32",
        "consistent_random": "crc32",
        "fnv1a": "fnv1a",
        "fnv1a_random": "fnv1a",
        "round_robin": "round_robin",
    }
)
"""Every spelling, including librdkafka's, and the name that the configuration stores."""

_BACKEND_METHODS = ("dial", "watch", "poll", "forget", "wake", "close")
_NO_PARTITION_METHOD = (
    "objects with partition(topic, key, ...), as in kafka-python 3, cannot be used: pass a"
    " callable, or implement the method choose"
)


def _quoted_names(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


class SerializerPlugin:
    """A name, a callable, or an instance with ``serialize``. "bytes" is stored as None."""

    type_name = "str, callable, object or None"
    expected = (
        f"{_quoted_names(SERIALIZERS)}, a callable(object) -> bytes,"
        " an object with serialize(topic, headers, object), or None"
    )

    def convert(self, value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, str) and value in SERIALIZERS:
            return None if value == "bytes" else value
        serialize = getattr(value, "serialize", None)
        _refuse_class(value, callable(serialize))
        if not callable(serialize) and not callable(value):
            raise Refused
        if inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(serialize):
            raise Refused("a coroutine function cannot be used here")
        return value


class PartitionerPlugin:
    """A name, a callable, or an instance with ``choose`` and ``appended``."""

    type_name = "str, callable or object"
    expected = (
        f"{_quoted_names(PARTITIONERS)},"
        " a callable(key_bytes, all_partitions, available_partitions) -> int,"
        " or an object with choose and appended, and on_new_batch if it is sticky (KIP-480)"
    )

    def convert(self, value: Any) -> Any:
        if value is None:
            return "default"
        if isinstance(value, str) and value in PARTITIONERS:
            return PARTITIONERS[value]
        if _is_kafka_pythons(value):
            return "default"
        chooses = all(callable(getattr(value, name, None)) for name in ("choose", "appended"))
        _refuse_class(value, chooses)
        if not chooses and not callable(value):
            if callable(getattr(value, "partition", None)):
                raise Refused(_NO_PARTITION_METHOD)
            raise Refused
        return value


def _is_kafka_pythons(value: Any) -> bool:
    """Whether ``value`` is kafka-python 3's default partitioner, which is equivalent to ours."""
    kind = type(value)
    return kind.__name__ == "DefaultPartitioner" and kind.__module__ == "kafka.partitioner.default"


class InterceptorPlugins:
    """A list of instances, each with at least one hook; stored as a tuple."""

    type_name = "list of objects"
    expected = f"a list of objects, each with one or more of {', '.join(INTERCEPTOR_HOOKS)}"

    def convert(self, value: Any) -> tuple[Any, ...]:
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            raise Refused
        for interceptor in value:
            hooked = any(callable(getattr(interceptor, hook, None)) for hook in INTERCEPTOR_HOOKS)
            _refuse_class(interceptor, hooked)
            if not hooked:
                raise Refused(f"{safe_repr(interceptor)} has none of these methods")
        return tuple(value)


def is_open_backend(transport: Any) -> bool:
    """Whether an option ``transport`` is a backend, rather than a name or what makes a backend."""
    return hasattr(transport, "dial") and not isinstance(transport, type)


class TransportPlugin:
    """The name of a registered transport, a factory of backends, or a backend."""

    type_name = "str, callable or object"
    expected = (
        'the name of a transport such as "tcp", a class or callable that returns a backend, or a'
        " backend: an object with dial, watch, poll, forget, wake and close"
    )

    def convert(self, value: Any) -> Any:
        named = isinstance(value, str) and bool(value)
        backend = all(callable(getattr(value, name, None)) for name in _BACKEND_METHODS)
        if not named and not callable(value) and not backend:
            raise Refused
        return value


def _refuse_class(value: Any, fits: bool) -> None:
    if fits and isinstance(value, type):
        raise Refused("it is a class: pass an instance")
