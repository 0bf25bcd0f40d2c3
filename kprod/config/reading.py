"""Reads given options into one value per option, and collects all problems."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from kprod.config.foreign_options import IGNORED, UNAVAILABLE, not_used, unavailable
from kprod.config.kinds import Refused, safe_repr
from kprod.config.option import Option, plain_name
from kprod.config.secret import Secret
from kprod.config.table import OPTIONS, PROFILES
from kprod.errors import ConfigError

_log = logging.getLogger("kprod.config")


_BY_SPELLING: Mapping[str, Option] = {
    plain_name(spelling): option for option in OPTIONS.values() for spelling in option.spellings
}


LIKE, NEARLY_THE_SAME = 0.6, 0.9
"""Similarity, from 0 to 1, above which a name is taken for a misspelling of another."""

_MAY_HOLD_TEXT = (str, bytes, bytearray, list, tuple, dict)
_Options = TypeVar("_Options", bound=Mapping[str, Any])


def concealed(options: _Options) -> _Options:
    """The same options with secrets as ``Secret``, to keep them out of tracebacks and pickles.

    Call this first with any options of an application. Text of an unknown option is concealed, too,
    because the name may be a misspelled secret option.
    """
    kept: Any = {name: _concealed(name, value) for name, value in options.items()}
    return cast(_Options, kept)


def _concealed(spelled: Any, value: Any) -> Any:
    name = plain_name(spelled) if isinstance(spelled, str) else ""
    option = _BY_SPELLING.get(name)
    if option is not None:
        hidden = not isinstance(value, Secret) and option.conceals(value)
        return Secret(value, option.name) if hidden else value
    known = name in IGNORED or name in UNAVAILABLE
    hidden = isinstance(value, _MAY_HOLD_TEXT) and not known
    return Secret(value, spelled) if hidden else value


def option_name(spelled: str) -> str:
    """The name of an option in any spelling; of an unknown option the plain spelling."""
    plain = plain_name(spelled)
    option = _BY_SPELLING.get(plain)
    return plain if option is None else option.name


def by_name(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options by their names, for callers that read some of them.

    Raises ConfigError if an option is set twice, in two spellings.
    """
    named: dict[str, Any] = {}
    given: dict[str, str] = {}
    for spelled, value in options.items():
        name = option_name(spelled)
        if name in given:
            raise ConfigError(set_twice(name, given[name], spelled))
        named[name], given[name] = value, spelled
    return named


def of_profile(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the profile sets that these options name; of an invalid one nothing."""
    try:
        profile = OPTIONS["profile"].kind.convert(options.get("profile"))
    except Refused:
        return {}
    return PROFILES.get(profile, {})


def with_defaults(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The options, and those of a package's own ``defaults`` that they leave open.

    What their profile sets is not left open.
    """
    settled = {*map(option_name, options), *of_profile(options)}
    return {**{n: value for n, value in defaults.items() if n not in settled}, **options}


def set_twice(name: str, first: str, second: str) -> str:
    """What is wrong with an option in two spellings."""
    return f'{name} is set twice: "{first}" and "{second}"'


_TRUTH: Mapping[str, Any] = {"true": True, "false": False}
_NUMBERS: Mapping[str, Any] = {**_TRUTH, "inf": math.inf, "none": None}


def from_text(spelled: str, text: str | Secret) -> Any:
    """The value of an option that is given as text: in files, on command lines, in Spark.

    A number, a boolean, infinity or None if the option takes one; otherwise text, even if it
    consists of digits.
    """
    if isinstance(text, Secret):
        return text
    option = _BY_SPELLING.get(plain_name(spelled))
    words = _TRUTH
    if option is not None:
        types = option.kind.type_name.split()
        if {"int", "bool"}.isdisjoint(types):
            return text
        words = _NUMBERS if "int" in types else _TRUTH
    try:
        return int(text)
    except ValueError:
        return words.get(text.lower(), text)


class OptionReader:
    """The result of reading a set of options.

    ``values`` has an entry for every option: the given value, otherwise the profile's, otherwise
    the default. ``given`` maps the names of the given options to the spelling used. ``problems``
    are sentences, empty if all options are valid. ``unknown`` are names that are not options.
    ``refused`` are the names of options with an invalid value; ``values`` has their defaults.
    """

    def __init__(self, options: Mapping[Any, Any]) -> None:
        self.values: dict[str, Any] = {
            name: option.kind.convert(option.default) for name, option in OPTIONS.items()
        }
        self.given: dict[str, str] = {}
        self.refused: set[str] = set()
        self.problems: list[str] = []
        self.unknown: list[str] = []
        for spelled, value in options.items():
            self._read(spelled, value)
        for name, value in PROFILES.get(self.values["profile"], {}).items():
            if name not in self.given:
                self.values[name] = OPTIONS[name].kind.convert(value)

    def _read(self, spelled: Any, value: Any) -> None:
        if not isinstance(spelled, str):
            self.problems.append(f"an option's name must be text, not {safe_repr(spelled)}")
            return
        option = _BY_SPELLING.get(plain_name(spelled))
        if option is None:
            self._read_foreign(spelled, value)
        elif option.name in self.given:
            self._refuse(option, set_twice(option.name, self.given[option.name], spelled))
        else:
            self.given[option.name] = spelled
            self._convert(option, spelled, value)

    def _convert(self, option: Option, spelled: str, value: Any) -> None:
        try:
            self.values[option.name] = option.convert(value, spelled)
        except Refused as refusal:
            self._refuse(option, str(refusal))

    def _refuse(self, option: Option, problem: str) -> None:
        self.refused.add(option.name)
        self.problems.append(problem)

    def _read_foreign(self, spelled: str, value: Any) -> None:
        """An option that kprod does not have. Its value is never shown: it may be a password."""
        name = plain_name(spelled)
        if (reason := unavailable(name, value)) is not None:
            if not not_used(name, value):
                meant = _did_you_mean(name, NEARLY_THE_SAME)
                self.problems.append(f"{spelled} cannot be used: {reason}{meant}")
        elif name in IGNORED:
            _log.warning("option %s is ignored: %s", spelled, IGNORED[name])
        else:
            self.unknown.append(spelled)
            self.problems.append(f"unknown option {spelled!r}{_did_you_mean(name)}")


def _did_you_mean(name: str, likeness: float = LIKE) -> str:
    import difflib  # needed only for misspelled names

    close = difflib.get_close_matches(name.lower(), _BY_SPELLING, n=1, cutoff=likeness)
    return f"; did you mean {_BY_SPELLING[close[0]].name!r}?" if close else ""
