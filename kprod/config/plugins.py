"""Options whose value is an object of the application: serializers, partitioner, ..."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from types import MappingProxyType
from typing import Any

from kprod.config.kinds import Refused
from kprod.config.safe_repr import safe_repr

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
"""Every spelling, librdkafka's among them, and the name the configuration keeps."""

_BACKEND_METHODS = ("dial", "watch", "poll", "forget", "wake", "close")
_NO_PARTITION_METHOD = (
    "objects with partition(topic, key, ...), as kafka-python 3 has them, cannot be used: pass a"
    " callable, or write the method choose"
)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


class SerializerPlugin:
    """A name, a callable, or an instance with ``serialize``. "bytes" is kept as None."""

    type_name = "str, callable, object or None"
    expected = (
        f"{_quoted(SERIALIZERS)}, a callable(object) -> bytes,"
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
        f"{_quoted(PARTITIONERS)},"
        " a callable(key_bytes, all_partitions, available_partitions) -> int,"
        " or an object with choose and appended, and on_new_batch if it turns by batches (KIP-480)"
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
    """Whether it is the default partitioner of kafka-python 3, which does as ours does."""
    kind = type(value)
    return kind.__name__ == "DefaultPartitioner" and kind.__module__ == "kafka.partitioner.default"


class InterceptorPlugins:
    """A list of instances, each with one hook or more; kept as a tuple."""

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


class TransportPlugin:
    """The name of a registered transport, what makes a backend, or a backend."""

    type_name = "str, callable or object"
    expected = (
        'the name of a transport such as "tcp", a class or callable that makes a backend, or a'
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
