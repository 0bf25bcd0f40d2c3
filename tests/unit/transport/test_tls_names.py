"""Names of hosts that no certificate can have."""

from __future__ import annotations

import pytest

from kprod.errors import ConnectionLost
from kprod.transport.memory import MemoryBackend
from kprod.transport.tls import TlsBackend
from kprod.transport.tls_context import TlsContexts, TlsSettings


@pytest.mark.parametrize("host", ["kafka..example.com", ".example.com", "x" * 64 + ".com"])
def test_a_name_that_no_host_can_have_is_not_connected_to(host: str) -> None:
    """As without TLS, where it cannot be resolved; it was logged as a mistake, with its stack."""
    backend = TlsBackend(MemoryBackend({}), TlsContexts(TlsSettings()))
    with pytest.raises(ConnectionLost, match=rf"cannot resolve {host}:9093: .*label"):
        backend.dial(host, 9093)
    assert backend.poll(0) == []
    backend.close()
