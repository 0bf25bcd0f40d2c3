"""A broker with TLS and logins for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.certificates import Certificates
from tests.support.guarded_broker import GuardedBroker, guarded_broker


@pytest.fixture(scope="session")
def guarded(certificates: Certificates) -> Iterator[GuardedBroker]:
    with guarded_broker(certificates, {"t": 3}) as broker:
        yield broker
