"""Scenarios that take a cluster, or exact moments: each once, by name, in simulated time.

The simulation judges every run by all its invariants; what a test asserts besides is that the
scenario took place. What seeds find is in ``tests/simulation``.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.actions import (
    Action,
    Crash,
    FlushAll,
    ForgetProducers,
    Grow,
    HideTopic,
    MoveLeader,
    Recreate,
    Send,
    StallClient,
)
from tests.simulation.broker_actions import CutAll, Disturb, Pause, SlowWires
from tests.simulation.interference import Interference
from tests.simulation.schedule import Schedule
from tests.simulation.setup import Setup
from tests.simulation.world import Outcome, run

PATIENT: dict[str, Any] = {"delivery_timeout_ms": 120_000, "max_block_ms": 120_000}


def play(setup: Setup, *actions: Action, gentle: bool = True) -> Outcome:
    """Run it; ``gentle``: nothing in it may cost a record.

    When all is calm, the simulation sends another record, a probe, to each partition.
    """
    ordered = tuple(sorted(actions, key=lambda action: action.at))
    outcome = run(Schedule(seed=1, setup=setup, actions=ordered, gentle=gentle))
    assert not outcome.violations
    if gentle:
        sent = sum(action.records for action in actions if isinstance(action, Send))
        assert outcome.acknowledged > sent
        assert outcome.failed == 0
    return outcome


def sends(start: float, end: float, step: float, **options: Any) -> list[Send]:
    """A few records in every step."""
    steps = round((end - start) / step)
    return [Send(round(start + n * step, 4), 0, 6, 60, **options) for n in range(steps)]


def produce(how: str, code: int = 0, **options: Any) -> Interference:
    """Something that happens to a Produce request."""
    return Interference("produce", how, code, **options)


# The network --------------------------------------------------------------------------------------


def test_wires_that_carry_next_to_nothing() -> None:
    """Every byte takes hundreds of times as long, and a socket takes 150 of them."""
    setup = Setup(window=150, latency=0.0005, **PATIENT)
    play(setup, SlowWires(0.1, 30, 500), *sends(0.1, 2, 0.1))


def test_a_broker_that_takes_two_seconds_for_every_request() -> None:
    setup = Setup(request_timeout_ms=3000, buffer_memory=3000, **PATIENT)
    slow = Disturb(0.0, 0, produce("stall", seconds=2.0), times=30)
    outcome = play(setup, slow, *sends(0.1, 2, 0.1))
    assert outcome.seconds > 3


def test_a_connection_that_breaks_after_every_answer() -> None:
    every = Disturb(0.0, 0, produce("cut-response", part=1.0), times=60)
    play(Setup(**PATIENT), every, *sends(0.1, 2, 0.1))


# Leaders and brokers ------------------------------------------------------------------------------


@pytest.mark.parametrize("lose_tail", [False, True])
def test_a_leader_that_changes_a_hundred_times_a_second(lose_tail: bool) -> None:
    setup = Setup(nodes=3, partitions=(1,), batch_size=150, metadata_lag=0.2, **PATIENT)
    moves = [
        MoveLeader(round(0.3 + n / 100, 3), 0, 0, n % 3, gap=0.002, lose_tail=lose_tail)
        for n in range(100)
    ]
    play(setup, *moves, *sends(0.1, 1.5, 0.05))


def test_a_leader_change_with_five_batches_on_their_way() -> None:
    setup = Setup(nodes=2, partitions=(1,), batch_size=150, latency=0.05, **PATIENT)
    play(setup, Send(0.0, 0, 3), Send(0.6, 0, 40), MoveLeader(0.68, 0, 0, 1))


def test_three_brokers_restarted_one_after_the_other() -> None:
    setup = Setup(nodes=3, partitions=(3,), replication=0.0, **PATIENT)
    restarts = [Crash(0.5 + n, n % 3, seconds=0.5, gap=0.1) for n in range(9)]
    play(setup, *restarts, *sends(0.1, 10, 0.1, keys="explicit"))


def test_a_broker_that_hangs_for_longer_than_requests_may_take() -> None:
    setup = Setup(nodes=2, partitions=(2,), batch_size=150, request_timeout_ms=300, **PATIENT)
    play(setup, Pause(0.5, 0, 5), Pause(8, 1, 5), *sends(0.1, 12, 0.2))


# Topics -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [3, 5])
def test_a_topic_that_is_missing_for_five_seconds_keeps_its_sequences(code: int) -> None:
    setup = Setup(partitions=(2,), metadata_max_age_ms=1000, batch_size=150, **PATIENT)
    play(setup, HideTopic(0.5, 0, 5, code), CutAll(1.0, 0), *sends(0.1, 8, 0.2))


def test_a_topic_that_grows_under_load() -> None:
    grows = [Grow(0.2 + n / 10, 0) for n in range(20)]
    setup = Setup(partitions=(2,), metadata_max_age_ms=1000, **PATIENT)
    play(setup, *grows, *sends(0.1, 5, 0.1, keys="few"))


def test_a_topic_that_is_made_anew_under_load() -> None:
    setup = Setup(partitions=(2,), batch_size=150, **PATIENT)
    again = [Recreate(at, 0, gap=0.4) for at in (0.5, 2.0, 3.5)]
    play(setup, *again, *sends(0.1, 5, 0.1))


def test_a_producer_that_brokers_forget_again_and_again() -> None:
    setup = Setup(partitions=(2,), batch_size=150, **PATIENT)
    forgets = [ForgetProducers(1.0 + n) for n in range(5)]
    bursts = [Send(1.2 + n, 0, 30, 60, "explicit") for n in range(5)]
    refused = [Disturb(1.1 + n, 0, produce("error-before", 19)) for n in range(5)]
    play(setup, Send(0.0, 0, 4), *forgets, *bursts, *refused)


# Sequences ----------------------------------------------------------------------------------------


def test_partitions_named_by_the_application_and_chosen_by_us_keep_one_order() -> None:
    setup = Setup(partitions=(3,), batch_size=150, **PATIENT)
    mixed = [
        Send(round(0.1 + n / 20, 3), 0, 7, 40, ("explicit", "none", "few")[n % 3])
        for n in range(60)
    ]
    cuts = [CutAll(0.5 + n / 2, 0) for n in range(5)]
    play(setup, *mixed, *cuts)


@pytest.mark.parametrize("lost", [1, 2, 3, 4, 5])
def test_lost_answers_within_what_a_broker_remembers(lost: int) -> None:
    setup = Setup(partitions=(1,), batch_size=150, latency=0.02, request_timeout_ms=800, **PATIENT)
    losses = Disturb(0.5, 0, produce("cut-response", part=0.0), times=lost)
    play(setup, Send(0.0, 0, 3), losses, Send(0.6, 0, 60))


@pytest.mark.parametrize("first_epoch", [32766, 32767])
def test_epochs_come_to_their_end(first_epoch: int) -> None:
    setup = Setup(first_epoch=first_epoch, partitions=(2,), batch_size=150, **PATIENT)
    refusals = [Disturb(0.5 + n, 0, produce("error-before", 45)) for n in range(4)]
    play(setup, *refusals, *sends(0.1, 5, 0.1))


def test_one_refusal_for_good_with_four_batches_behind_it() -> None:
    setup = Setup(partitions=(1,), batch_size=150, latency=0.02, **PATIENT)
    refusal = Disturb(0.5, 0, produce("error-before", 87))
    outcome = play(setup, Send(0.0, 0, 3), refusal, Send(0.6, 0, 30), gentle=False)
    assert outcome.failed > 0
    assert outcome.acknowledged == 33 + 1 - outcome.failed


# Without idempotence ------------------------------------------------------------------------------


def test_without_idempotence_nothing_is_lost() -> None:
    setup = Setup(idempotent=False, max_in_flight=5, partitions=(1,), batch_size=150, **PATIENT)
    trouble = [
        Disturb(0.4 + n, 0, produce(how, code), times=2)
        for n, (how, code) in enumerate(
            [("error-before", 6), ("cut-response", 0), ("error-after", 7), ("cut-request", 0)]
        )
    ]
    play(setup, *trouble, *sends(0.1, 5, 0.05))


def test_without_idempotence_one_in_flight_keeps_the_order() -> None:
    """What is doubled stays next to itself: nothing overtakes a batch that is tried again."""
    setup = Setup(
        nodes=2, idempotent=False, max_in_flight=1, partitions=(1,), batch_size=150, **PATIENT
    )
    trouble = [Disturb(0.4 + n, 0, produce("error-before", 19), times=3) for n in range(3)]
    moves = [MoveLeader(0.9 + n, 0, 0, (n + 1) % 2) for n in range(3)]
    play(setup, *trouble, *moves, *sends(0.1, 5, 0.05))


# The application's process ------------------------------------------------------------------------


def test_a_process_that_is_stopped_for_longer_than_records_may_take() -> None:
    setup = Setup(request_timeout_ms=300, delivery_timeout_ms=1000, batch_size=150)
    stall = StallClient(1.0, 60)
    outcome = play(setup, *sends(0.1, 3, 0.1), stall, FlushAll(2.0), gentle=False)
    assert outcome.acknowledged > 0
