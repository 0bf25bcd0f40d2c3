"""One row of the table of options."""

from __future__ import annotations

from typing import Any, NamedTuple

from kprod.config.kinds import Kind, Refused, safe_repr
from kprod.config.secret import Secret

HIDDEN = "***"
FIRST_VERSION = "0.1.0"


def plain_name(spelled: str) -> str:
    """The name with underscores in place of Java's dots."""
    return spelled.replace(".", "_")


class Option(NamedTuple):
    """An option: its name (kafka-python's spelling), default, kind and meaning.

    ``default`` is as a user would write it. ``aliases`` are other clients' spellings; the name
    with dots is accepted without being listed. The value of a ``secret`` option, or one that the
    kind ``conceals``, appears in no error, ``repr`` or pickle. ``since`` is the version that added
    the option.
    """

    name: str
    default: Any
    kind: Kind
    doc: str
    aliases: tuple[str, ...] = ()
    secret: bool = False
    since: str = FIRST_VERSION

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every accepted name: the name, the name with dots (Java), the aliases."""
        dotted = self.name.replace("_", ".")
        return tuple(dict.fromkeys((self.name, dotted, *self.aliases)))

    def convert(self, value: Any, spelled: str) -> Any:
        """The value as the configuration stores it. Raises Refused with a complete sentence."""
        try:
            return self.kind.convert(value)
        except Refused as refusal:
            raise Refused(self._complaint(value, spelled, str(refusal))) from None

    def _complaint(self, value: Any, spelled: str, reason: str) -> str:
        name = self.name if spelled == self.name else f'{self.name} (given as "{spelled}")'
        # A reason already quotes the invalid part, without possible passwords.
        got = reason or f"got {HIDDEN if self.conceals(value) else safe_repr(value)}"
        return f"{name}: expected {self.kind.expected}; {got}"

    def conceals(self, value: Any) -> bool:
        """Whether ``value`` is a secret, or may contain one."""
        if isinstance(value, Secret):
            return True
        if not self.secret or value is None:
            return False
        of_kind = getattr(self.kind, "conceals", None)  # a path, for example, is not secret
        return of_kind is None or bool(of_kind(value))

    def shown(self, value: Any) -> str:
        """The value for a ``repr``."""
        return HIDDEN if self.conceals(value) else _plainly(value)


def _plainly(value: Any) -> str:
    """The ``repr`` of text and numbers; of an application's object only the type."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_plainly, value))}{',' if len(value) == 1 else ''})"
    return repr(value) if isinstance(value, str | int | None) else f"<{_type_name(value)}>"


def _type_name(value: Any) -> str:
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"
