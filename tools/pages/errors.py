"""The page of errors, from the table that ``kprod errors`` prints."""

from __future__ import annotations

import re

from kprod.cli.error_pages import error_body, error_table, error_title

_INTRODUCTION = """\
# Errors

Every error of kprod has a number, which never changes. For each error, this page says what
happened, what it means for the record, what the usual causes are, and what to do. You find the
number

- in log lines and in the output of the `kprod` command, after the text of the error;
- in the message of a `KafkaError` of `kprod.confluent`, if the error does not come from a broker;
- in programs, as `error.number`.

`kprod errors KP-1303` prints the entry of an error. It also accepts the class name that a traceback
shows: `kprod errors DeliveryTimeoutError`. Without an argument it lists all numbers. This command
works without the extra `cli`.

The text of an error (`str(error)`) does not contain the number, and neither does a traceback. So a
test with `pytest.raises(match="...$")` needs no number. Errors of the drop-in packages with a name
of kafka-python or aiokafka have the number of the kprod error that they replace.

**Kind** is the category of the error in Kafka's KIP-1050: *retriable* (the same call may succeed
later), *abortable* (abort the transaction, and begin another one), *application-recoverable* (close
the producer, and continue with a new one), *fatal* (close the producer), *invalid configuration*.
Programs use `error.retriable` and `error.next_step` instead. **Tried again** says what kprod does
by itself before it raises.

This page is written by `python -m tools.pages` from `kprod/cli/error_table.toml`.
"""
_NUMBER = re.compile(r"(?<![\w#])(KP-\d{4})")
_FIRST_SENTENCE = re.compile(r".*?\.(?= |$)")


def errors_page() -> str:
    """The whole page, Markdown, ending in a newline. The anchor of a number is ``#kp-1303``."""
    rows = "".join(
        f"| [{number}](#{number.lower()}) | `{error_title(number).partition(': ')[2]}` |"
        f" {_linked(_first_sentence(row['happened']))} |\n"
        for number, row in error_table().items()
    )
    index = f"| number | error | what happened |\n|---|---|---|\n{rows}"
    return "\n".join([_INTRODUCTION, index, *map(_section, error_table())])


def _section(number: str) -> str:
    body = _linked(error_body(number))
    return f"## {error_title(number)} {{: #{number.lower()} }}\n\n{body}\n"


def _linked(text: str) -> str:
    return _NUMBER.sub(lambda found: f"[{found[1]}](#{found[1].lower()})", text)


def _first_sentence(text: str) -> str:
    found = _FIRST_SENTENCE.match(text)
    return (found[0] if found else text).removesuffix(".")
