"""Each error has a number that never changes, and a row that says what the class says."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

from kprod.cli.error_pages import error_table
from kprod.errors import MAYBE_WRITTEN, RETRIABLE, BrokerError, ErrorCode, KprodError

ROOT = Path(__file__).parents[2]

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
    "KP-3101": "kprod.exactly_once.errors.ExactlyOnceError",
    "KP-3102": "kprod.exactly_once.errors.MarkerError",
    "KP-3103": "kprod.exactly_once.errors.StaleBatch",
    "KP-3104": "kprod.exactly_once.errors.ShardCountChanged",
    "KP-3105": "kprod.exactly_once.errors.RowsChanged",
    "KP-3106": "kprod.exactly_once.errors.TransactionTooSlow",
    "KP-3107": "kprod.exactly_once.errors.BatchNotCommitted",
    "KP-3108": "kprod.exactly_once.errors.BatchIncomplete",
    "KP-4001": "kprod.broker.log.checkpoint_files.StorageError",
    "KP-4002": "kprod.records.codecs.CorruptBatch",
    "KP-4003": "kprod.records.codecs.BatchTooLarge",
}
FACES = {"kafka/errors.py", "aio/errors.py"}
"""Classes under the names of other packages: each stands for an error that has a number."""


def class_of(number: str) -> type[KprodError]:
    module, _, name = NUMBERS[number].rpartition(".")
    found: type[KprodError] = getattr(importlib.import_module(module), name)
    return found


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


def test_every_number_has_a_row_and_every_row_a_number() -> None:
    assert {number: row["class"] for number, row in error_table().items()} == NUMBERS


def test_the_table_of_codes_is_that_of_the_code() -> None:
    row = re.compile(
        r"^\| (-?\d+) \| (\w+) \| (yes|no) \| (may be stored|not stored) \|", re.MULTILINE
    )
    told = row.findall(error_table()[BrokerError.number]["notes"])
    assert len(told) > 20
    for code, name, retriable, stored in told:
        assert ErrorCode(int(code)).name == name
        assert (retriable == "yes") == (int(code) in RETRIABLE), name
        assert (stored == "may be stored") == (int(code) in MAYBE_WRITTEN), name
