"""The embedded broker's network side: invalid requests, stop and restart, addresses."""

from __future__ import annotations

import socket
import struct
import threading
import time
from pathlib import Path

import pytest

from kprod.admin import create_topic, end_offsets, read_topic
from kprod.broker import EmbeddedBroker
from kprod.broker.log.checkpoint_files import StorageError
from kprod.broker.protocol.api_key import ApiKey
from kprod.broker.protocol.messages import Message
from kprod.errors import BrokerError, ConfigError, IllegalStateError
from tests.support.raw_batch import raw_batch
from tests.support.wire_client import WireClient

RANGES = (ApiKey.API_VERSIONS, 0)


BROKER = {"topics": {"t": 2}}


def produce_request(records: bytes, acks: int = -1) -> Message:
    parts = [{"index": 0, "records": records}]
    return {"acks": acks, "topic_data": [{"name": "t", "partition_data": parts}]}


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        bytes.fromhex("16030100c0010000bc0303") + bytes(200),
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 7) + bytes(7),
        struct.pack(">i", 100 * 1024 * 1024 + 1),
        struct.pack(">ihhi", 8, 1234, 0, 1),
        struct.pack(">ihhih", 10, 0, 99, 1, -1),
        struct.pack(">ihhih", 14, 3, 4, 1, -1) + b"\x7f\xff\xff\xff",
        struct.pack(">ihhih", 21, 3, 4, 1, -1) + b"\0\0\0\1\0\4\xff\xfe\xff\xfe\1",
    ],
)
def test_invalid_requests_close_the_connection(broker: EmbeddedBroker, data: bytes) -> None:
    with WireClient(broker.bootstrap_servers) as client:
        client.send_bytes(data)
        assert client.is_closed_by_peer()
    with WireClient(broker.bootstrap_servers) as client:
        client.send(*RANGES, {})
        assert client.receive(*RANGES)[1].error_code == 0


def test_a_refused_request_without_acks_closes_the_connection(broker: EmbeddedBroker) -> None:
    with WireClient(broker.bootstrap_servers) as client:
        client.send(ApiKey.PRODUCE, 9, produce_request(raw_batch([b"a"]), acks=0))
        client.send(*RANGES, {}, 5)
        assert client.receive(*RANGES)[0] == 5
        client.send(ApiKey.PRODUCE, 9, produce_request(raw_batch(crc=1), acks=0))
        assert client.is_closed_by_peer()
    assert end_offsets(broker.bootstrap_servers, "t")[0] == 1


def test_stop_is_prompt_with_connected_and_waiting_clients() -> None:
    others = set(threading.enumerate())  # threads of shared brokers
    broker = EmbeddedBroker(topics={"t": 2})
    broker.start()
    clients = [WireClient(broker.bootstrap_servers) for _ in range(20)]
    topic = {"topic": "t", "partitions": [{"partition": 0, "partition_max_bytes": 100}]}
    fetch = {"max_wait": 50_000, "min_bytes": 1, "max_bytes": 100, "topics": [topic]}
    for client in clients[:10]:
        client.send(ApiKey.FETCH, 11, fetch)
    before = time.monotonic()
    broker.stop()
    assert time.monotonic() - before < 10
    for client in clients:
        client.close()
    left = set(threading.enumerate()) - others
    assert not [thread for thread in left if thread.name.startswith("kprod-broker")]


@pytest.mark.parametrize("end", [EmbeddedBroker.stop, EmbeddedBroker.kill])
def test_a_restart_keeps_address_and_records(end: object, broker: EmbeddedBroker) -> None:
    assert callable(end)
    address = broker.bootstrap_servers
    batch = raw_batch([b"a", b"b"], producer_id=3, producer_epoch=0, base_sequence=0)
    for _ in range(3):
        with WireClient(address) as client:
            client.send(ApiKey.PRODUCE, 9, produce_request(batch))
            part = client.receive(ApiKey.PRODUCE, 9)[1].responses[0].partition_responses[0]
            assert (part.error_code, part.base_offset) == (0, 0)
        end(broker)
        end(broker)
        assert not broker.running
        broker.start()
        assert broker.bootstrap_servers == address
    assert [record.value for _, record in read_topic(address, "t")] == [b"a", b"b"]


def test_a_temporary_directory_is_removed_at_the_end() -> None:
    with EmbeddedBroker() as broker:
        assert (broker.data_dir / "meta.properties").exists()
    assert not broker.data_dir.exists()


def test_a_given_directory_is_kept(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, topics={"t": 1}) as broker:
        create_topic(broker.bootstrap_servers, "u", 3)
        with pytest.raises(BrokerError, match="TOPIC_ALREADY_EXISTS"):
            create_topic(broker.bootstrap_servers, "u", 3)
    with EmbeddedBroker(tmp_path, topics={"t": 1}) as broker:
        assert end_offsets(broker.bootstrap_servers, "u") == {0: 0, 1: 0, 2: 0}


def test_a_second_broker_for_a_directory_is_refused(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        second = EmbeddedBroker(tmp_path)
        with pytest.raises(StorageError, match="in use"):
            second.start()
        assert not second.running
        with pytest.raises(IllegalStateError):
            broker.start()


def test_a_port_in_use_is_refused() -> None:
    with EmbeddedBroker() as first:
        second = EmbeddedBroker(port=first.port)
        with pytest.raises(OSError, match="in use"):
            second.start()


@pytest.mark.parametrize(("port", "nodes"), [(65_535, 2), (65_536, 1), (-1, 1)])
def test_an_invalid_port_is_refused(port: int, nodes: int) -> None:
    with pytest.raises(ConfigError, match=f"port={port}, nodes={nodes}: .* highest port is 65535"):
        EmbeddedBroker(port=port, nodes=nodes)
    EmbeddedBroker(port=65_534, nodes=2)


def test_non_local_hosts_need_allow_remote() -> None:
    for host in ("0.0.0.0", "192.168.1.1", "::", "example.org"):
        with pytest.raises(ConfigError, match="allow_remote"):
            EmbeddedBroker(host=host)
    with EmbeddedBroker(host="0.0.0.0", allow_remote=True) as broker:
        assert broker.bootstrap_servers.startswith("0.0.0.0:")
    EmbeddedBroker(host="localhost")


def test_the_broker_listens_on_ipv6() -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    with EmbeddedBroker(host="::1", topics={"t": 1}) as broker:
        assert broker.bootstrap_servers == f"[::1]:{broker.port}"
        assert end_offsets(broker.bootstrap_servers, "t") == {0: 0}
