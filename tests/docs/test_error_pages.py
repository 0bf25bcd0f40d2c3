"""Each error has a number that never changes, and a page that says what the class says."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from kprod.cli.error_pages import error_pages
from kprod.errors import (
    MAYBE_WRITTEN,
    RETRIABLE,
    BrokerError,
    ConfigError,
    ErrorCode,
    KprodError,
)
from kprod.schema import RegistryError
from kprod.types import NextStep

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "docs" / "errors"

# A number is in logs and tickets for ever: lines are added here, and never changed.
NUMBERS = {
    "KP-1000": "kprod.errors.KprodError",
    "KP-1101": "kprod.errors.ConfigError",
    "KP-1102": "kprod.errors.InvalidTopicError",
    "KP-1103": "kprod.errors.InvalidRecordError",
    "KP-1104": "kprod.errors.RecordTypeError",
    "KP-1105": "kprod.errors.SerializationError",
    "KP-1106": "kprod.errors.PartitionError",
    "KP-1107": "kprod.errors.RecordTooLargeError",
    "KP-1201": "kprod.errors.IllegalStateError",
    "KP-1202": "kprod.errors.UnfinishedCallError",
    "KP-1203": "kprod.errors.ProducerClosedError",
    "KP-1301": "kprod.errors.KprodTimeoutError",
    "KP-1302": "kprod.errors.BufferFullError",
    "KP-1303": "kprod.errors.DeliveryTimeoutError",
    "KP-1401": "kprod.errors.TransactionTimeoutError",
    "KP-1402": "kprod.errors.TransactionError",
    "KP-1403": "kprod.errors.TransactionAbortableError",
    "KP-1404": "kprod.errors.ProducerFencedError",
    "KP-1405": "kprod.errors.TransactionAbortedError",
    "KP-1501": "kprod.errors.DeliveryError",
    "KP-1601": "kprod.errors.ConnectionLost",
    "KP-1602": "kprod.errors.AuthenticationError",
    "KP-1603": "kprod.errors.TlsAuthenticationError",
    "KP-1604": "kprod.errors.SaslAuthenticationError",
    "KP-1605": "kprod.errors.ProtocolError",
    "KP-1606": "kprod.errors.UnsupportedVersionError",
    "KP-1701": "kprod.errors.BrokerError",
    "KP-1702": "kprod.errors.InvalidBatchError",
    "KP-1801": "kprod.confluent.errors.Purged",
    "KP-2001": "kprod.schema.errors.RegistryError",
    "KP-2002": "kprod.schema.errors.SchemaNotFoundError",
    "KP-2003": "kprod.schema.errors.IncompatibleSchemaError",
    "KP-3001": "kprod.spark.errors.SchemaError",
    "KP-3002": "kprod.spark.errors.JobFailed",
    "KP-3003": "kprod.spark.errors.RowErrorLimitExceeded",
    "KP-3004": "kprod.spark.errors.WriteFailed",
    "KP-3101": "kprod.spark.errors.ExactlyOnceError",
    "KP-3102": "kprod.spark.errors.MarkerError",
    "KP-3103": "kprod.spark.errors.StaleBatch",
    "KP-3104": "kprod.spark.errors.ShardCountChanged",
    "KP-3105": "kprod.spark.errors.RowsChanged",
    "KP-3106": "kprod.spark.errors.TransactionTooSlow",
    "KP-3107": "kprod.spark.errors.BatchNotCommitted",
    "KP-3108": "kprod.spark.errors.BatchIncomplete",
    "KP-4001": "kprod.broker.log.checkpoint_files.StorageError",
    "KP-4002": "kprod.broker.records.codecs.CorruptBatch",
    "KP-4003": "kprod.broker.records.codecs.BatchTooLarge",
}
FACES = {"kafka/errors.py", "aio/errors.py"}
"""Classes under the names of other packages: each stands for an error that has a number."""
STORED = ("Not stored", "Not visible", "Not changed", "Stored", "May be", "`error.persisted`")
OF_NEXT_STEP = {
    NextStep.ABORT: "Abortable",
    NextStep.CLOSE: "Fatal",
    NextStep.RETRY_CALL: "Retriable: the same call",
    NextStep.START_AGAIN: "Application-recoverable",
}


def class_of(number: str) -> type[KprodError]:
    module, _, name = NUMBERS[number].rpartition(".")
    found: type[KprodError] = getattr(importlib.import_module(module), name)
    return found


def page_of(number: str) -> str:
    return (PLACE / f"{number}.md").read_text()


def kind_of(error: type[KprodError]) -> str:
    """The word that a page's kind begins with."""
    if issubclass(error, BrokerError | RegistryError):
        return "By "
    if error.next_step is not None:
        return OF_NEXT_STEP[error.next_step]
    if issubclass(error, ConfigError):
        return "Invalid configuration"
    if error.retriable:
        return "Retriable, with new metadata" if error.refreshes_metadata else "Retriable"
    return "Not retriable"


def classes_of_the_source() -> set[str]:
    """Every class below KprodError that a module of kprod defines, as the source has it."""
    classes: dict[str, tuple[set[str], str]] = {}
    for file in sorted((ROOT / "kprod").rglob("*.py")):
        place = str(file.relative_to(ROOT / "kprod"))
        if place in FACES:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
                module = "kprod." + place.removesuffix(".py").replace("/", ".")
                classes[f"{module}.{node.name}"] = bases, node.name
    found = {"KprodError"}
    while True:
        more = {name for bases, name in classes.values() if bases & found} - found
        if not more:
            return {path for path, (_, name) in classes.items() if name in found}
        found |= more


def test_every_error_has_a_number_of_its_own() -> None:
    assert classes_of_the_source() == set(NUMBERS.values())
    assert {number: class_of(number).number for number in NUMBERS} == {
        number: number for number in NUMBERS
    }


def test_every_number_has_a_page_and_every_page_a_number() -> None:
    assert {page.stem for page in PLACE.glob("KP-*.md")} == set(NUMBERS)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_page_says_what_its_class_is(number: str) -> None:
    error, page = class_of(number), page_of(number)
    title, _, path = page.splitlines()[:3]
    assert title == f"# {number}: {error.__name__}"
    assert path == f"`{NUMBERS[number]}`"
    record = re.search(r"^- \*\*The record\*\*: (.*)", page, re.MULTILINE)
    assert record is not None
    assert record[1].startswith(STORED)
    kind = re.search(r"^- \*\*Kind\*\*: (.*)", page, re.MULTILINE)
    assert kind is not None
    assert kind[1].startswith(kind_of(error))


@pytest.mark.parametrize("number", NUMBERS)
def test_a_page_tells_causes_and_what_to_do(number: str) -> None:
    page = page_of(number)
    assert re.findall(r"^- \*\*(.*?)\*\*: \S", page, re.MULTILINE) == [
        *("What happened", "The record", "Kind", "Tried again")
    ]
    parts = dict(re.findall(r"^## (.*)\n\n((?:.+\n?)+)", page, re.MULTILINE))
    assert parts["Causes"].startswith("- ")
    assert parts["What to do"].startswith("- ")


@pytest.mark.parametrize("number", NUMBERS)
def test_a_page_names_the_error_that_its_class_is_a_kind_of(number: str) -> None:
    kinds = [base for base in class_of(number).__bases__ if issubclass(base, KprodError)]
    above = {kind.number for kind in kinds} - {KprodError.number}
    linked = set(re.findall(r"\((KP-\d+)\.md\)", page_of(number)))
    assert above <= linked


def test_the_table_of_codes_is_that_of_the_code() -> None:
    row = re.compile(
        r"^\| (-?\d+) \| (\w+) \| (yes|no) \| (may be stored|not stored) \|", re.MULTILINE
    )
    told = row.findall(page_of(BrokerError.number))
    assert len(told) > 20
    for code, name, retriable, stored in told:
        assert ErrorCode(int(code)).name == name
        assert (retriable == "yes") == (int(code) in RETRIABLE), name
        assert (stored == "may be stored") == (int(code) in MAYBE_WRITTEN), name


def test_the_index_leads_to_every_page() -> None:
    rows = re.findall(
        r"^\| \[(KP-\d+)\]\((KP-\d+)\.md\) \| `(\w+)` \| \S",
        (PLACE / "README.md").read_text(),
        re.MULTILINE,
    )
    assert rows == [(number, number, class_of(number).__name__) for number in NUMBERS]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_traceback_leads_to_the_page(number: str) -> None:
    kind = class_of(number)
    (note,) = kind.__new__(kind).__notes__
    command, page = re.findall(r"kprod errors (\S+)'.* errors/(\S+) ", note)[0]
    assert error_pages([command]).startswith(f"# {number}: ")
    assert (PLACE / f"{page}.md").is_file()
