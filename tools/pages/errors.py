"""The page of errors, from the table that ``kprod errors`` prints."""

from __future__ import annotations

import re

from kprod.cli.error_pages import error_body, error_table, error_title

_INTRODUCTION = """\
# Errors

Every error of kprod has a number, which never changes. Here is what each means: what happened,
what it means for the record, the usual causes, and what to do. The number is

- in lines of the log and of the `kprod` command, behind the text, and in the words of a
  `KafkaError` of `kprod.confluent` that is the client's own;
- in programs, as `error.number`.

`kprod errors KP-1303` prints what this page says of it, and so does `kprod errors
DeliveryTimeoutError`, with the name that a traceback ends in. Without an argument it lists all
numbers. It needs no extra. The text of an error has no number, and nothing is added below it in a
traceback: `pytest.raises(match="...$")` sees what `str(error)` is. Under a name of kafka-python's
or aiokafka's an error has the number of kprod's error that it stands for, which is its cause.

**Kind** is that of Kafka's KIP-1050: *retriable* (the same call may succeed later), *abortable*
(abort the transaction, and begin another one), *application-recoverable* (close the producer, and
continue with a new one), *fatal* (close the producer), *invalid configuration*. A program finds
it as `error.retriable` and `error.next_step`. **Tried again** says what kprod does by itself
before it raises.

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
