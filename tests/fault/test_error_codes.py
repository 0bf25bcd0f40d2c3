"""Every error code a broker may answer a batch with, through the whole sender, with and without
idempotence: the record ends as it should, and the next one is stored.
"""

from __future__ import annotations

from typing import Any

import pytest

from kprod.errors import KprodError
from kprod.types import Persisted
from kprod.wire.versions import ApiKey
from tests.support.scripted_cluster import ScriptedBroker, ScriptedCluster, refuse
from tests.support.sender_rig import SenderRig

STORED, NOT_STORED, MAYBE_STORED = "stored", Persisted.NO, Persisted.MAYBE

PASSING = (2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 51, 56, 72, 74, 75, 89)
TOO_LARGE = (10, 18)
FINAL = (17, 21, 29, 31, 32, 35, 42, 43, 44, 48, 49, 53, 76, 87, 90)
UNKNOWN = -1
"""Nobody knows what the broker has done."""
SEQUENCE = (45, 47, 59)
DUPLICATE = 46
IDEMPOTENT: dict[str, Any] = {}
PLAIN: dict[str, Any] = {"enable_idempotence": False}


def outcome(
    options: dict[str, Any], code: int, times: int = 1
) -> tuple[str | Persisted, SenderRig]:
    """How a record ends that is refused so many times, and what it ended in."""
    broker = ScriptedCluster(topics={"t": [1]}).add(1)
    rig = SenderRig(broker.cluster, **options)
    rig.know("t")
    assert rig.run(rig.queue(b"first").succeeded)
    broker.next(ApiKey.PRODUCE, *[refuse(code)] * times)
    future = rig.queue(b"refused")
    assert rig.run(lambda: future.is_done, seconds=100)
    if future.succeeded():
        return STORED, rig
    assert isinstance(future.exception, KprodError)
    return future.exception.persisted, rig


def goes_on(rig: SenderRig) -> bool:
    """Whether the next record is stored, once, and everything was given back."""
    assert rig.run(rig.queue(b"next").succeeded, seconds=100)
    pool = rig.sender.accumulator.pool
    assert pool.available == pool.total
    return rig.cluster.values("t").count(b"next") == 1


@pytest.mark.parametrize("options", [IDEMPOTENT, PLAIN], ids=["idempotent", "plain"])
@pytest.mark.parametrize("code", PASSING)
def test_what_passes_is_waited_out(options: dict[str, Any], code: int) -> None:
    for times in (1, 2):
        ended, rig = outcome(options, code, times)
        assert ended == STORED
        assert rig.cluster.values("t") == [b"first", b"refused"]
        assert goes_on(rig)


@pytest.mark.parametrize("options", [IDEMPOTENT, PLAIN], ids=["idempotent", "plain"])
@pytest.mark.parametrize("code", [*FINAL, *TOO_LARGE])
def test_what_is_final_fails_the_record_and_no_other(options: dict[str, Any], code: int) -> None:
    ended, rig = outcome(options, code)
    assert ended is NOT_STORED
    assert rig.cluster.values("t") == [b"first"]
    assert goes_on(rig)


@pytest.mark.parametrize("options", [IDEMPOTENT, PLAIN], ids=["idempotent", "plain"])
def test_what_leaves_everything_open_says_so(options: dict[str, Any]) -> None:
    ended, rig = outcome(options, UNKNOWN)
    assert ended is MAYBE_STORED
    assert goes_on(rig)


@pytest.mark.parametrize("code", SEQUENCE)
def test_a_sequence_that_is_refused_is_given_anew(code: int) -> None:
    ended, rig = outcome(IDEMPOTENT, code)
    assert ended == STORED
    assert rig.cluster.values("t") == [b"first", b"refused"]
    assert goes_on(rig)


@pytest.mark.parametrize("code", SEQUENCE)
def test_without_sequences_such_a_refusal_is_final(code: int) -> None:
    ended, rig = outcome(PLAIN, code)
    assert ended is NOT_STORED
    assert goes_on(rig)


def test_a_repetition_that_is_recognised_was_stored_before() -> None:
    assert outcome(IDEMPOTENT, DUPLICATE)[0] == STORED


@pytest.mark.parametrize("options", [IDEMPOTENT, PLAIN], ids=["idempotent", "plain"])
def test_no_code_is_tried_for_ever(options: dict[str, Any]) -> None:
    """A broker that says the same for ever ends the record when its time is up."""
    for code in (*PASSING, *SEQUENCE):
        ended, rig = outcome({**options, "delivery_timeout_ms": 32_000}, code, times=2_000)
        assert ended in (NOT_STORED, MAYBE_STORED), code
        broker: ScriptedBroker = rig.cluster.brokers[1]
        assert broker.count(ApiKey.PRODUCE) < 100, "the back-off was not kept"
