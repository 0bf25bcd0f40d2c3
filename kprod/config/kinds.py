"""The kinds of value an option can take: what each expects, and how it is kept."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
_NOTHING: Mapping[Any, Any] = MappingProxyType({})


class Refused(Exception):
    """The value is not of the kind; the text, if any, says why beyond "expected ..."."""


class Kind(Protocol):
    """A family of values. Instances are immutable and may be shared."""

    @property
    def type_name(self) -> str:
        """Short, for the table of options: ``int``, ``bool``."""
        ...

    @property
    def expected(self) -> str:
        """The accepted values in words, to stand after "expected"."""
        ...

    def convert(self, value: Any) -> Any:
        """The value in the form the configuration keeps it. Raises Refused."""
        ...


class WholeNumber(NamedTuple):
    """An integer in ``[low, high]``. A float that is a whole number counts; True and False do not.

    ``instead`` maps values with a special meaning, which need not be in the range, to what is kept.
    """

    low: int
    high: int = MAX_INT32
    unit: str = ""
    instead: Mapping[Any, Any] = _NOTHING

    @property
    def type_name(self) -> str:
        return "int or None" if None in self.instead else "int"

    @property
    def expected(self) -> str:
        unit = f" of {self.unit}" if self.unit else ""
        outside = [f", or {value}" for value in self.instead if value != self.low]
        return f"a whole number{unit} from {self.low} to {self.high}{''.join(outside)}"

    def convert(self, value: Any) -> Any:
        number = None if value is None else _whole(value)
        if number in self.instead:
            return self.instead[number]
        if number is None or not self.low <= number <= self.high:
            raise Refused
        return number


def _whole(value: Any) -> int | float:
    """The integer a value stands for; infinity stays, for those that have a meaning for it."""
    if isinstance(value, float):
        if not value.is_integer() and not math.isinf(value):
            raise Refused
        return value if math.isinf(value) else int(value)
    if isinstance(value, bool):
        raise Refused
    try:
        return operator.index(value)
    except TypeError:
        raise Refused from None


class Truth:
    """True or False; nothing that is merely truthy."""

    type_name = "bool"
    expected = "True or False"

    def convert(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise Refused
        return value


class Choice(NamedTuple):
    """One of a few spellings, each kept as what it stands for. Text is matched in lower case."""

    meanings: Mapping[Any, Any]
    type_name: str
    expected: str
    refusals: Mapping[Any, str] = _NOTHING

    def convert(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, str | int | None):
            raise Refused
        spelled = value.strip().lower() if isinstance(value, str) else value
        if spelled in self.refusals:
            raise Refused(self.refusals[spelled])
        if spelled not in self.meanings:
            raise Refused
        return self.meanings[spelled]


class TransactionalId:
    """Text that names a producer across its lives; None for a producer without transactions."""

    type_name = "str or None"
    expected = "text of 1 to 32767 bytes in UTF-8, or None"

    def convert(self, value: Any) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            raise Refused
        return ClientId().convert(value)


class ClientId:
    """Text for the broker's logs and quotas; None and "" ask for a name made here."""

    type_name = "str or None"
    expected = "text of at most 32767 bytes in UTF-8, or None"

    def convert(self, value: Any) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise Refused
        try:
            size = len(value.encode())
        except UnicodeEncodeError as error:
            raise Refused(f"it cannot be written as UTF-8: {error.reason}") from None
        if size > 2**15 - 1:
            raise Refused(f"it has {size} bytes")
        return value or None
