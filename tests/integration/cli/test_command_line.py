"""The ``kprod`` command: invalid arguments, missing packages, and standard streams."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import kprod
from kprod.broker import EmbeddedBroker
from kprod.cli import main
from kprod.cli.app import app
from tests.support.programs import run_python
from tests.support.tier import one_of

UNREACHABLE = ("--bootstrap-servers", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("broker --port 0 --topic flights:0", "NAME:PARTITIONS"),
        ("broker --port 0 --topic flights:six", "NAME:PARTITIONS"),
        ("consume --topic t --offset @", "--offset"),
        ("consume --topic t -f %z", "unknown placeholder %z"),
        ("consume --topic t -X linger_ms=5", "connection options only"),
        ("consume --topic t -X security_protocol=SLS", "security_protocol"),
        (
            "consume --topic t -X security_protocol=SASL_SSL -X sasl_plain_username=alice",
            "sasl_mechani",
        ),
        ("demo --keep", ""),
        ("perf -X lingr_ms=5", "did you mean 'linger_ms'"),
        ("perf --call teleport", "'teleport' is not one of"),
        ("perf --records 0", "--records"),
        ("perf --partitions 3 -X bootstrap.servers=127.0.0.1:1", "about the embedded broker"),
        ("perf --payload-file /no/such/file", "does not exist"),
        ("perf --payload-file /dev/null", "has no lines"),
        ("produce --topic t --option lingr_ms=5", "did you mean 'linger_ms'"),
        ("produce --topic t --header =x", "NAME=VALUE"),
        ("produce --topic t --delimiter ''", "expected at least one character"),
        (r"produce --topic t --key-separator '\q'", "for a backslash"),
        ("produce --topic t --format json --empty-is-null", "--format text only"),
        ("transactions abort x --timeout inf", "--timeout"),
        ("topics create fresh --topic-option retention", "NAME=VALUE"),
        ("topics create fresh --partitions 0", "above 0, or -1"),
        ("topics create fresh -X acks=1", "connection options only"),
    ],
)
def test_invalid_arguments_are_refused_before_connecting(command: str, message: str) -> None:
    where = () if command.startswith("broker") or "bootstrap" in command else UNREACHABLE
    ran = CliRunner().invoke(app, [*shlex.split(command), *where])
    assert ran.exit_code == 2
    assert message in " ".join(ran.stderr.replace("│", " ").split())


def test_a_users_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    users = tmp_path / "latin1.txt"
    users.write_bytes(b"andr\xe9:secret\n")
    ran = CliRunner().invoke(app, ["broker", "--port", "0", "--users", str(users)])
    assert ran.exit_code == 2
    assert "--users: " in ran.stderr


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("demo --no-spark", "kprod demo: "),
        ("perf -X max_block_ms=300", "kprod perf: "),
        ("produce --topic t -X max_block_ms=300", "0 delivered, 1 failed\n"),
        ("topics list", "kprod topics: "),
        ("topics list -X socks5_proxy=http://127.0.0.1:2", "by the proxy 127.0.0.1:2"),
    ],
)
def test_the_error_names_an_unreachable_broker(command: str, message: str) -> None:
    ran = CliRunner().invoke(app, [*shlex.split(command), *UNREACHABLE], input="a\nb\n")
    assert ran.exit_code == 1
    assert "127.0.0.1:1" in ran.stderr
    assert message in ran.stderr


def test_without_typer_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit, match=r"needs typer: pip install 'kprod\[cli\]'"):
        main()


WITHOUT_KIO = """
import sys
sys.modules["kio"] = None
"""


def without_kio(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script in an interpreter that cannot import kio."""
    return run_python("-c", WITHOUT_KIO + script, *arguments, check=False)


@pytest.mark.parametrize(
    "arguments", one_of(("perf",), ("broker", "--port", "0"), ("demo", "--no-spark"))
)
def test_without_kio_the_error_says_what_to_install(arguments: tuple[str, ...]) -> None:
    ran = without_kio("from kprod.cli import main; main()", *arguments)
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    assert "needs kio: pip install 'kprod[broker]'" in ran.stderr


@pytest.mark.full
def test_without_kio_consume_topics_and_transactions_work(broker: EmbeddedBroker) -> None:
    command = "from kprod.cli import main; main()"
    with kprod.KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"one").get(30)
    where = ("--bootstrap-servers", broker.bootstrap_servers)
    reading = ("consume", "--topic", "t", "--from-beginning", "--until-end", *where)
    assert without_kio(command, *reading).stdout == "one\n"
    assert without_kio(command, "topics", "list", *where).stdout.startswith("t ")
    listed = without_kio(command, "transactions", "list", *where)
    assert (listed.returncode, listed.stderr) == (0, "")


def test_help_imports_neither_spark_nor_the_broker() -> None:
    script = (
        "import sys; sys.argv = ['kprod', 'demo', '--help']\n"
        "from kprod.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('pyspark', 'pyarrow', 'kio') if m in sys.modules])"
    )
    assert run_python("-c", script).stdout.splitlines()[-1] == "[]"


def test_python_m_kprod_works() -> None:
    assert run_python("-m", "kprod", "--version").stdout == f"kprod {kprod.__version__}\n"


def shell(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script; ``$kprod`` is the command."""
    kprod_command = f"{sys.executable} -m kprod"
    return subprocess.run(
        ["sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"kprod": kprod_command, **variables},
    )


@pytest.mark.parametrize("arguments", one_of("topics list", "--version", "errors KP-1303"))
def test_a_failed_write_to_standard_output_is_a_one_line_error(
    arguments: str, broker: EmbeddedBroker
) -> None:
    servers = f"--bootstrap-servers {broker.bootstrap_servers}" if "list" in arguments else ""
    ran = shell(f"$kprod {arguments} {servers} > /dev/full")
    assert ran.returncode == 1
    assert ran.stderr == "kprod: [Errno 28] No space left on device\n"


def test_a_failed_write_to_standard_error_does_not_stop_delivery(broker: EmbeddedBroker) -> None:
    produce = f"$kprod produce --topic t --bootstrap-servers {broker.bootstrap_servers}"
    ran = shell(f"printf 'no key\nk=v\n' | {produce} --key-separator = 2> /dev/full")
    assert ran.returncode == 1
    assert [record.value for record in broker.records("t")] == [b"v"]


@pytest.mark.parametrize(
    "command", one_of("verifiable-producer --bootstrap-server", "consume --bootstrap-servers")
)
def test_a_closed_standard_output_is_refused(command: str, broker: EmbeddedBroker) -> None:
    """Otherwise offsets of unprinted records would be committed."""
    ran = shell(f"$kprod {command} {broker.bootstrap_servers} --topic t >&-")
    assert ran.returncode == 1
    assert "standard output is closed" in ran.stderr
    assert broker.records("t") == []


@pytest.mark.full
def test_a_broken_output_pipe_is_not_an_error(broker: EmbeddedBroker) -> None:
    with kprod.KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(20_000):
            producer.send("t", b"a line")
    consume = f"$kprod consume --bootstrap-servers {broker.bootstrap_servers} --topic t"
    ran = shell(f"{consume} --from-beginning | head -1")
    assert (ran.stdout, ran.stderr) == ("a line\n", "")


def test_a_confirmation_without_standard_input_suggests_yes(broker: EmbeddedBroker) -> None:
    ran = shell(f"$kprod topics delete t --bootstrap-servers {broker.bootstrap_servers} <&-")
    assert ran.returncode == 1
    assert ran.stderr == "kprod topics: standard input is closed; pass --yes to do it unasked\n"


@pytest.mark.full
def test_produce_refuses_a_closed_standard_input() -> None:
    ran = shell("$kprod produce --topic t --bootstrap-servers 127.0.0.1:1 <&-")
    assert ran.returncode == 2
    assert "standard input is closed" in ran.stderr
