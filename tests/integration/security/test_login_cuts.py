"""The connection breaks while a login is under way: at every byte of every message of it.

``KPROD_CAMPAIGN=long`` takes every byte, otherwise each 23rd is taken.
"""

from __future__ import annotations

import pytest

from kprod.broker.protocol.api_key import ApiKey
from tests.fault.names import Names
from tests.support.frame_proxy import FrameProxy, Spoil
from tests.support.guarded_broker import GuardedBroker
from tests.support.judge import read_back
from tests.support.tier import CAMPAIGN, one_of

STEP = 1 if CAMPAIGN else 23
MECHANISMS = one_of("OAUTHBEARER", "PLAIN", "SCRAM-SHA-512")
GREETING, MECHANISM, MESSAGE = (
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
)
UNTOUCHED = Spoil(MESSAGE, "pass")
BEFORE: dict[str, list[list[Spoil]]] = {
    "PLAIN": [[]],
    "SCRAM-SHA-512": [[], [UNTOUCHED]],
    "OAUTHBEARER": [[]],
}
"""For each message of a login, what becomes of those before it."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["cut-request", "cut-response"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_login_that_is_cut_is_made_anew(mechanism: str, how: str, guarded: GuardedBroker) -> None:
    topic, sent, cuts = f"cut-{mechanism}-{how}", 0, 0
    options = guarded.secrets("plain", mechanism)
    with FrameProxy(int(guarded.address("plain", mechanism).rpartition(":")[2])) as proxy:
        with Names(proxy.port).producer(**options) as first:
            first.send(topic, b"%d" % sent).get(20)
        for api in (GREETING, MECHANISM, MESSAGE):
            for before in BEFORE[mechanism] if api is MESSAGE else [[]]:
                sizes = proxy.sizes[api]
                size = sizes.request if how == "cut-request" else sizes.response
                for at in range(0, size + 1, STEP):
                    proxy.arm(*before, Spoil(api, how, at, reset=at % 2 == 1))
                    sent, cuts = sent + 1, cuts + 1
                    with Names(proxy.port).producer(**options) as producer:
                        producer.send(topic, b"%d" % sent).get(20)
                    assert not proxy.armed
    found = read_back(guarded.address("plain", "none"), topic, 1)
    assert [record.value for record in found] == [b"%d" % number for number in range(sent + 1)]
    print(f"{mechanism}, {how}: {cuts} logins were cut, each was made anew")
