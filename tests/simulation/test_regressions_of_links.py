"""Bugs of connections, and of the simulation itself, as the smallest schedules that show them."""

from __future__ import annotations

from tests.simulation.actions import Crash, ForgetProducers, HideBroker, Send, StallClient
from tests.simulation.broker_actions import CutAll, Disturb, SlowWires
from tests.simulation.interference import Interference
from tests.simulation.schedule import Schedule
from tests.simulation.setup import Setup
from tests.simulation.world import run


def test_a_broker_that_left_the_list_for_a_moment_keeps_its_back_off() -> None:
    """It came back as one that nothing was known of, and a batch was repeated at once."""
    schedule = Schedule(
        seed=888000650,
        setup=Setup(
            nodes=3, partitions=(1, 2), latency=0.002, window=150, reconnect_backoff_max_ms=100
        ),
        actions=(
            Send(at=0.2698, topic=1, records=4, keys="explicit"),
            SlowWires(at=0.2901, seconds=0.01, factor=500.0),
            HideBroker(at=0.723, node=0, seconds=4.5),
            Send(at=1.1419, topic=0, records=1, size=150, keys="few"),
            Disturb(1.1599, 0, Interference("produce", "cut-request", partition=1), times=3),
            HideBroker(at=1.3766, node=0, seconds=0.1),
        ),
        gentle=True,
    )
    assert not run(schedule).violations


def test_a_topic_that_is_needed_after_minutes_without_a_broker_may_be_asked_for_at_once() -> None:
    """The first answer for minutes named it; it was unused for so long that it was dropped, and
    the next record needed it: the watch took that for a repetition.
    """
    schedule = Schedule(
        seed=5500020496,
        setup=Setup(partitions=(1, 2), handshake_version=0, latency=0.01),
        actions=(
            Send(at=0.2915, topic=0, records=1, size=5, keys="few"),
            Crash(at=0.3197, node=0, seconds=1.8, gap=0.6),
            ForgetProducers(at=0.4942),
            ForgetProducers(at=1.8534),
            Disturb(1.8534, 0, Interference("produce", "error-before", code=9, partition=1)),
            Send(at=1.8967, topic=1, records=4, size=150, keys="explicit"),
            ForgetProducers(at=1.9681),
            ForgetProducers(at=2.1196),
            Send(at=2.3196, topic=0, records=1, size=60, keys="explicit"),
        ),
        gentle=True,
    )
    assert not run(schedule).violations


def test_a_handshake_that_was_begun_before_all_was_well_may_take_its_time() -> None:
    """Three lost answers doubled the time that the next connection is given, to more than a
    record of this schedule has: the judge did not grant it.
    """
    schedule = Schedule(
        seed=5500031162,
        setup=Setup(nodes=2, replication=0.05, latency=0.01, delivery_timeout_ms=3305),
        actions=(
            Send(at=1.0217, topic=0, records=1, size=20, keys="none"),
            Disturb(1.1394, 0, Interference("produce", "wrong-id", partition=0)),
            Send(at=1.9476, topic=0, records=1, size=5, keys="explicit"),
            Disturb(
                2.1119, 0, Interference("handshake", "lose-response", part=0.463, seconds=0.9), 3
            ),
            Send(at=2.3178, topic=0, records=1, size=150, keys="explicit"),
            Send(at=5.9475, topic=0, records=1, size=60, keys="none"),
        ),
    )
    assert not run(schedule).violations


def test_a_part_that_an_answer_has_ended_is_not_sent_again() -> None:
    """A batch was cut for a slow link, its first part ended by an error, and five parts followed:
    the judge took the first for one that may be repeated. The application is told of the parts
    together.
    """
    schedule = Schedule(
        seed=70017790,
        setup=Setup(
            partitions=(1,), replication=0.05, batch_size=150, growth=3, request_timeout_ms=300
        ),
        actions=(
            Disturb(1.6629, 0, Interference("produce", "error-before", code=72, part=0.0)),
            Disturb(1.6629, 0, Interference("produce", "error-before", code=3, part=0.0)),
            Disturb(1.6629, 0, Interference("produce", "throttle", part=1.0, seconds=0.9)),
            Disturb(1.6629, 0, Interference("produce", "error-after", code=-1, part=1.0)),
            Send(at=1.848, topic=0, records=1, size=150, keys="explicit"),
            Send(at=3.4228, topic=0, records=12, size=20, keys="explicit"),
        ),
        gentle=False,
    )
    assert not run(schedule).violations


def test_a_part_that_a_code_nobody_knows_has_ended_is_not_waited_for() -> None:
    """As above, by a code that no client knows, which is UNKNOWN_SERVER_ERROR to all of them."""
    schedule = Schedule(
        seed=95014436,
        setup=Setup(max_in_flight=1, batch_size=150, growth=3, request_timeout_ms=800),
        actions=(
            Disturb(0.0086, 0, Interference("produce", "error-after", code=6, partition=1)),
            Disturb(0.02, 0, Interference("produce", "error-before", code=19)),
            Disturb(0.056, 0, Interference("produce", "delay", part=1.0, seconds=2.4)),
            Send(at=0.1907, topic=0, records=3, size=20),
            Send(at=0.2022, topic=0, records=1, size=60, keys="explicit"),
            Disturb(0.2136, 0, Interference("produce", "cut-response", part=1.0)),
            Disturb(0.2306, 0, Interference("produce", "error-after", code=999, part=1.0), times=2),
            Send(at=0.2973, topic=0, records=3, size=5),
            Send(at=0.3003, topic=0, records=1, size=60, keys="explicit"),
            Send(at=0.3253, topic=0, records=10, size=5),
            Send(at=1.1009, topic=0, records=3, size=60),
        ),
        gentle=False,
    )
    assert not run(schedule).violations


def test_an_answer_that_a_reset_has_taken_is_one_of_a_lost_connection() -> None:
    """Of seed 7313478: the judge wanted the pause that follows an answer, which nobody read."""
    schedule = Schedule(
        seed=7313478,
        setup=Setup(batch_size=150),
        actions=(
            Send(at=0.0134, topic=0, records=5, size=20, keys="few"),
            StallClient(at=0.0299, seconds=0.01),
            CutAll(at=0.0393, node=1, silently=False),
        ),
        gentle=True,
    )
    assert not run(schedule).violations


def test_what_lies_behind_a_second_copy_of_an_answer_is_not_read() -> None:
    """The client ended the connection at the copy; the judge took the error behind it for told,
    and the batch that was sent again for one that had ended.
    """
    schedule = Schedule(
        seed=110002027,
        setup=Setup(replication=0.05, latency=0.002, batch_size=150),
        actions=(
            Send(at=0.1849, topic=0, records=10, size=20, keys="none"),
            Disturb(0.2673, 1, Interference("produce", "duplicate", part=0.0)),
            Disturb(0.3456, 1, Interference("produce", "error-after", 999, part=0.0, partition=1)),
            StallClient(at=0.3501, seconds=0.1),
        ),
    )
    assert not run(schedule).violations
