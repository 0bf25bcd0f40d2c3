"""Coroutine tests, certificates, embedded brokers and Apache Kafka."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kprod.broker import EmbeddedBroker
from tests.support.apache_kafka.broker import ApacheKafka
from tests.support.certificates import Certificates
from tests.support.ports import free_port


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test in its own event loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """One authority per process: generating keys is slow."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


BROKER: dict[str, Any] = {"topics": {"t": 3}}
"""Options of embedded brokers, unless a module defines ``BROKER``."""


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """A broker for one test."""
    with EmbeddedBroker(**getattr(request.module, "BROKER", BROKER)) as made:
        yield made


@pytest.fixture(scope="module")
def shared_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """A broker for all tests of a module."""
    with EmbeddedBroker(**getattr(request.module, "BROKER", BROKER)) as made:
        yield made


@pytest.fixture(scope="module")
def servers(shared_broker: EmbeddedBroker) -> str:
    """The address of the shared broker."""
    return shared_broker.bootstrap_servers


@pytest.fixture
def unreachable() -> str:
    """An address without a broker."""
    return f"127.0.0.1:{free_port()}"


SharedKafka = Callable[[str], ApacheKafka]
"""Returns the broker of a version. Tests must not stop or restart it, or delete topics."""


@pytest.fixture(scope="session")
def shared_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedKafka]:
    """Brokers by version, each started on first use.

    A name of a topic, a group or a transactional id is used by one file only.
    """
    running: dict[str, ApacheKafka] = {}
    with ExitStack() as stack:

        def of(version: str) -> ApacheKafka:
            if version not in running:
                folder = tmp_path_factory.mktemp("kafka")
                running[version] = stack.enter_context(ApacheKafka(folder, version))
            return running[version]

        yield of
