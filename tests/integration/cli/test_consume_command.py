"""``kprod consume``: start offsets, group commits and output formats."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from kprod import KafkaProducer
from kprod.admin import committed_offsets, read_topic
from kprod.broker import ApiKey, EmbeddedBroker, Fault
from kprod.cli.app import app
from kprod.types import TopicPartition
from tests.integration.cli.processes import process_tree
from tests.support.waiting import await_true


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker with ten records in each of two partitions, with timestamps 1,000 to 1,009."""
    with EmbeddedBroker(topics={"t": 2, "copy": 2}) as broker:
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(10):
                for partition in (0, 1):
                    producer.send(
                        "t",
                        b"%d-%d" % (partition, number),
                        b"k\xff" if number == 9 else b"k",
                        {"h": None, "g": b"\xfe"},
                        partition=partition,
                        timestamp_ms=1000 + number,
                    )
        yield broker.bootstrap_servers


def consume(bootstrap: str, *arguments: str, topic: str = "t") -> Result:
    command = ["consume", "--topic", topic, "--bootstrap-servers", bootstrap, "--until-end"]
    return CliRunner().invoke(app, [*command, *arguments])


@pytest.mark.parametrize(
    ("offset", "first"),
    [("beginning", 0), ("3", 3), ("-2", 8), ("-99", 0), ("@1007", 7), ("@99999", 10), ("end", 10)],
)
def test_consume_begins_at_the_given_offset(bootstrap: str, offset: str, first: int) -> None:
    ran = consume(bootstrap, "--offset", offset, "--partition", "1")
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.split() == [f"1-{number}" for number in range(first, 10)]


def test_an_unknown_partition_is_an_error(bootstrap: str) -> None:
    ran = consume(bootstrap, "--partition", "7")
    assert ran.exit_code == 1
    assert "partitions 0 to 1" in ran.stderr


def test_a_missing_topic_is_reported_and_awaited(bootstrap: str) -> None:
    late = ["consume", "--topic", "late", "--until-end", "--from-beginning"]
    late += ["--bootstrap-servers", bootstrap]
    ran = CliRunner().invoke(app, [*late, "--timeout", "1.5"])
    assert ran.exit_code == 1
    waiting, ended = ran.stderr.splitlines()
    assert waiting.startswith("kprod consume: UNKNOWN_TOPIC_OR_PARTITION (3): topic 'late'")
    assert waiting.endswith("; waiting")
    assert ended == waiting.removesuffix("; waiting")


def test_an_open_transaction_with_offsets_of_the_group_is_awaited(bootstrap: str) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap, transactional_id="copies") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, "copiers")
        ran = consume(bootstrap, "--group", "copiers", "--timeout", "1.5")
        producer.abort_transaction()
    assert ran.exit_code == 1
    waiting, ended = ran.stderr.splitlines()
    assert "commit or abort that one first" in ended
    assert waiting == f"{ended}; waiting"


def test_uncommitted_records_are_printed_only_with_read_uncommitted() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        servers = broker.bootstrap_servers

        def printed(*arguments: str) -> str:
            return consume(servers, "--offset", "beginning", *arguments).stdout

        with (
            KafkaProducer(bootstrap_servers=servers, transactional_id="x") as producer,
            KafkaProducer(bootstrap_servers=servers) as plain,
        ):
            producer.init_transactions()
            for value, end in (
                (b"aborted", producer.abort_transaction),
                (b"committed", producer.commit_transaction),
                (b"open", plain.flush),
            ):
                producer.begin_transaction()
                producer.send("t", value)
                producer.flush()
                end()
            plain.send("t", b"plain").get(20)
            assert printed("--group", "g") == "committed\n"
            all_lines = "aborted\ncommitted\nopen\nplain\n"
            uncommitted = ("--isolation", "read_uncommitted")
            assert printed(*uncommitted, "--group", "ahead") == all_lines
            assert committed_offsets(servers, "g") == {("t", 0): (4, "")}, "the open transaction"
            assert printed("--group", "ahead") == "", "the committed offset is not reset"
            producer.commit_transaction()
        assert printed("--group", "g") == "open\nplain\n"


def test_sigterm_commits_the_offsets_of_printed_records(bootstrap: str) -> None:
    """A signal between printing a record and marking it as printed causes a duplicate.

    The opposite order could lose it.
    """
    where = ("--topic", "t", "--bootstrap-servers", bootstrap, "--partition", "0")
    with process_tree(
        "consume", *where, "--from-beginning", "--group", "g", "--count", "20"
    ) as process:
        assert [process.stdout.readline() for _ in range(10)][-1] == "0-9\n"
        process.command.terminate()
        assert process.command.wait(30) == 0
    rest = consume(bootstrap, "--group", "g", "--offset", "beginning", *where[-2:]).stdout
    assert rest in ("", "0-9\n")


def test_sigterm_waits_for_the_final_commit() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("t", b"printed")
        slow = broker.faults.add(Fault(api=ApiKey.OFFSET_COMMIT, delay=1.0))
        where = ("--topic", "t", "--bootstrap-servers", broker.bootstrap_servers)
        with process_tree(
            "consume", *where, "--offset", "0", "--count", "1", "--group", "g"
        ) as process:
            await_true(lambda: slow.hits > 0)
            process.command.terminate()
            assert process.command.communicate(timeout=300) == ("printed\n", "")
            assert process.command.returncode == 0


def test_printed_records_are_committed_if_fetching_fails() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        servers = broker.bootstrap_servers
        with KafkaProducer(bootstrap_servers=servers) as producer:
            producer.send("t", b"printed")
        broker.faults.add(Fault(api=ApiKey.FETCH, after=2, error=29))  # not the first fetches
        command = ["consume", "--topic", "t", "--bootstrap-servers", servers, "--group", "g"]
        ran = CliRunner().invoke(app, [*command, "--from-beginning"])
        assert (ran.exit_code, ran.stdout) == (1, "printed\n")
        assert "TOPIC_AUTHORIZATION_FAILED" in ran.stderr
        assert committed_offsets(servers, "g") == {("t", 0): (1, "")}


def test_the_error_for_an_oversized_batch_names_the_option(servers: str) -> None:
    with KafkaProducer(bootstrap_servers=servers) as producer:
        producer.send("large", b"x" * 50_000)
    all_of_it = ("--from-beginning", "--timeout", "5")
    ran = consume(servers, *all_of_it, "-X", "receive_message_max_bytes=40000", topic="large")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "receive_message_max_bytes is the limit" in ran.stderr
    assert "waiting" not in ran.stderr


PAIRS = ("--format", "key-value")


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (
            ["0", "--count", "2", *PAIRS, "--key-separator", "=", "--delimiter", r"\0"],
            b"k=0-0\0k=0-1\0",
        ),
        (["9", *PAIRS], b"k\xff\t0-9\n"),
        (["8", "-f", r"%o %k=%s\0"], b"8 k=0-8\x009 k\xff=0-9\x00"),
    ],
)
def test_records_are_printed_in_the_requested_format(
    bootstrap: str, arguments: list[str], printed: bytes
) -> None:
    assert consume(bootstrap, "--partition", "0", "--offset", *arguments).stdout_bytes == printed


def test_json_lines_copy_a_topic(bootstrap: str) -> None:
    lines = consume(bootstrap, "--from-beginning", "--format", "json").stdout
    into = ["produce", "--topic", "copy", "--bootstrap-servers", bootstrap, "--format", "json"]
    ran = CliRunner().invoke(app, into, input=lines)
    assert ran.stderr == "20 delivered, 0 failed\n"
    whole = [sorted(read_topic(bootstrap, topic), key=str) for topic in ("t", "copy")]
    parts = [[(p, r.timestamp, r.key, r.value, r.headers) for p, r in found] for found in whole]
    assert sorted(parts[0], key=str) == sorted(parts[1], key=str)
