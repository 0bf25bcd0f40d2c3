"""Java's ``sasl.jaas.config``: what its usual login modules are given, by our names."""

from __future__ import annotations

import re
from typing import TypeAlias

from kprod.config.kinds import Refused

_ENTRY = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*);\s*", re.S)
_OPTION = re.compile(
    r"""\s+([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""", re.DOTALL
)
_OF_TOKENS = "OAuthBearerLoginModule"
_EXTENSION = "extension_"
_LOGIN = {"username": "sasl_plain_username", "password": "sasl_plain_password"}
_MODULES: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "PlainLoginModule": (("PLAIN",), _LOGIN),
    "ScramLoginModule": (("SCRAM-SHA-256", "SCRAM-SHA-512"), _LOGIN),
    _OF_TOKENS: (
        ("OAUTHBEARER",),
        {
            "clientId": "sasl_oauthbearer_client_id",
            "clientSecret": "sasl_oauthbearer_client_secret",
            "scope": "sasl_oauthbearer_scope",
        },
    ),
    "Krb5LoginModule": (
        ("GSSAPI",),
        {"serviceName": "sasl_kerberos_service_name", "principal": "sasl_kerberos_name"},
    ),
    "IAMLoginModule": (("AWS_MSK_IAM",), {}),
}
_ELSEWHERE = "set KRB5_CLIENT_KTNAME, or run kinit"


Named: TypeAlias = dict[str, tuple[str, str | dict[str, str]]]
"""By the name of an option what JAAS calls it, and its value."""


def read_jaas(text: str, mechanism: str | None) -> Named:
    """What it sets. Raises Refused, without telling a value, for what is not such an entry."""
    entry = _ENTRY.fullmatch(text)
    if entry is None:
        raise Refused("sasl_jaas_config: expected 'MODULE required NAME=\"VALUE\" ...;'")
    module = entry[1].rpartition(".")[2]
    if module not in _MODULES:
        raise Refused(f"sasl_jaas_config: the module {module} is not one of {', '.join(_MODULES)}")
    mechanisms, names = _MODULES[module]
    if mechanism not in mechanisms:
        raise Refused(
            f"sasl_jaas_config: {module} is for {' and '.join(mechanisms)}, not {mechanism}"
        )
    given = _pairs(entry[2])
    if module == "Krb5LoginModule":
        if "keyTab" in given:
            raise Refused(f"sasl_jaas_config: keyTab is not read; {_ELSEWHERE}")
        given = {name: value for name, value in given.items() if name in names}
    extensions = _extensions(given) if module == _OF_TOKENS else {}
    if unknown := [name for name in given if name not in names]:
        raise Refused(f"sasl_jaas_config: {module} has no option {unknown[0]} here")
    found: Named = {names[name]: (name, value) for name, value in given.items()}
    if extensions:
        found["sasl_oauthbearer_extensions"] = (f"{_EXTENSION}*", extensions)
    return found


def _extensions(given: dict[str, str]) -> dict[str, str]:
    """Take them out of the options: further names and values for the broker (KIP-342)."""
    named = [name for name in given if name.startswith(_EXTENSION)]
    return {name.removeprefix(_EXTENSION): given.pop(name) for name in named}


def _pairs(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while text[at:].strip():
        option = _OPTION.match(text, at)
        if option is None:
            raise Refused('sasl_jaas_config: expected NAME="VALUE" after the module and its flag')
        value = next(each for each in option.groups()[1:] if each is not None)
        found[option[1]] = re.sub(r"\\(.)", r"\1", value)
        at = option.end()
    return found
