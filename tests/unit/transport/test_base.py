from __future__ import annotations

import subprocess
import sys

import pytest

from kprod.errors import ConfigError
from kprod.transport.base import open_backend, register
from kprod.transport.memory import MemoryBackend
from kprod.transport.tcp import TcpBackend


def test_built_in_backends_are_known_by_name() -> None:
    tcp = open_backend("tcp", send_buffer_bytes=10_000)
    memory = open_backend("memory", listeners={})
    assert isinstance(tcp, TcpBackend)
    assert isinstance(memory, MemoryBackend)
    tcp.close()
    memory.close()


def test_a_factory_needs_no_name() -> None:
    assert isinstance(open_backend(MemoryBackend, listeners={}), MemoryBackend)


def test_a_registered_name_is_known_and_the_last_registration_counts() -> None:
    made: list[str] = []

    def factory_of(word: str) -> MemoryBackend:
        made.append(word)
        return MemoryBackend({})

    register("test-transport", lambda **options: factory_of("first"))
    register("test-transport", lambda **options: factory_of(options["word"]))
    open_backend("test-transport", word="second")
    assert made == ["second"]


def test_an_unknown_name_is_told_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match=r"'memry' is unknown.*tcp.*did you mean 'memory'\?"):
        open_backend("memry")
    with pytest.raises(ConfigError, match=r"'xyz' is unknown, there are memory, tcp"):
        open_backend("xyz")


def test_the_registry_loads_no_sockets() -> None:
    code = (
        "import sys; import kprod.transport.base; assert 'kprod.transport.tcp' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
