"""Rules between the security options; each problem says what is missing."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import TypeAlias

from kprod.config.addresses import MAX_PORT
from kprod.config.kinds import Refused
from kprod.config.reading import OptionReader
from kprod.config.rules import is_installed
from kprod.config.secret import exposed
from kprod.config.security_options import SCRAM, SECURITY_ROWS
from kprod.config.table import OPTIONS

_ENTRY = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*);\s*", re.S)
_OPTION = re.compile(
    r"""\s+([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""", re.DOTALL
)
_OF_TOKENS = "OAuthBearerLoginModule"
_EXTENSION = "extension_"
_JAAS_LOGIN = {"username": "sasl_plain_username", "password": "sasl_plain_password"}
_MODULES: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "PlainLoginModule": (("PLAIN",), _JAAS_LOGIN),
    "ScramLoginModule": (("SCRAM-SHA-256", "SCRAM-SHA-512"), _JAAS_LOGIN),
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
"""For each option, its name in the JAAS entry and its value."""


def read_jaas(text: str, mechanism: str | None) -> Named:
    """The options that the entry sets. Raises Refused, without values, for an invalid entry."""
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
    """Pop the SASL extensions (KIP-342) from the options."""
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


_log = logging.getLogger("kprod.config")

_NAMES = tuple(row.name for row in SECURITY_ROWS)
_TLS = tuple(n for n in _NAMES if n.startswith(("ssl_", "enable_ssl_")))
_SASL = tuple(n for n in _NAMES if n.startswith("sasl_"))
_LOGIN = ("sasl_plain_username", "sasl_plain_password", "sasl_credentials")
_CLIENT = (
    "sasl_oauthbearer_token_endpoint_url",
    "sasl_oauthbearer_client_id",
    "sasl_oauthbearer_client_secret",
)
_OAUTH = (
    "sasl_oauth_token_provider",
    *_CLIENT,
    "sasl_oauthbearer_scope",
    "sasl_oauthbearer_cafile",
    "sasl_oauthbearer_extensions",
)
_KERBEROS = ("sasl_kerberos_service_name", "sasl_kerberos_name", "sasl_kerberos_domain_name")
_BY_MECHANISM: dict[str, tuple[str, ...]] = {
    "PLAIN": _LOGIN,
    SCRAM[0]: _LOGIN,
    SCRAM[1]: _LOGIN,
    "OAUTHBEARER": _OAUTH,
    "AWS_MSK_IAM": ("sasl_msk_region",),
    "GSSAPI": _KERBEROS,
}
_PACKAGES = {
    SCRAM[0]: ("scramp", "kprod[scram]"),
    SCRAM[1]: ("scramp", "kprod[scram]"),
    "AWS_MSK_IAM": ("aws_msk_iam_sasl_signer", "kprod[msk]"),
    "GSSAPI": ("gssapi", "kprod[gssapi]"),
}
_ENDPOINT = re.compile(
    r"(?P<scheme>(?i:https?))://(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?"
    r"([/?][!-.0-\[\]-~/]*)?"
)
"""URLs that all parsers read alike: complete, without user, backslash or blank."""
_THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]")


def check_security(reader: OptionReader) -> Iterable[str]:
    """All problems. If an option is invalid by itself, the rules are not checked."""
    if not reader.refused.isdisjoint(_NAMES):
        return ()
    problems = [*_jaas(reader)]
    return problems or [*_tls(reader), *_sasl(reader), *_ways(reader)]


def _set(reader: OptionReader, names: Iterable[str]) -> list[str]:
    """Those of ``names`` whose values differ from the defaults."""
    return [n for n in names if reader.values[n] != OPTIONS[n].kind.convert(OPTIONS[n].default)]


def _jaas(reader: OptionReader) -> Iterable[str]:
    secret, mechanism = reader.values["sasl_jaas_config"], reader.values["sasl_mechanism"]
    if secret is None:
        return
    try:
        found = read_jaas(secret.reveal(), mechanism)
    except Refused as refusal:
        yield str(refusal)
        return
    for name, (spelled, value) in found.items():
        if name in reader.given:
            yield f"{name} is set twice: as an option and in sasl_jaas_config"
            continue
        reader.given[name] = "sasl.jaas.config"
        try:
            reader.values[name] = OPTIONS[name].kind.convert(value)
        except Refused as refusal:
            reason = str(refusal) or f"expected {OPTIONS[name].kind.expected}"
            yield f"sasl_jaas_config: {spelled}: {reason}"


def _tls(reader: OptionReader) -> Iterable[str]:
    values, protocol = reader.values, reader.values["security_protocol"]
    given = _set(reader, _TLS)
    if protocol not in ("SSL", "SASL_SSL"):
        if given:
            yield _meaningless(given, protocol, "SASL_SSL" if "SASL" in protocol else "SSL")
        return
    if values["ssl_context"] is not None and len(given) > 1:
        others = ", ".join(name for name in given if name != "ssl_context")
        yield f"ssl_context is used unchanged: configure {others} in the context instead"
    if not values["enable_ssl_certificate_verification"]:
        _log.warning("broker certificates are not verified: anyone can impersonate a broker")
    enabled, oldest = values["ssl_enabled_protocols"], values["ssl_minimum_version"]
    if enabled is not None and max(enabled) < oldest:
        yield f"ssl_enabled_protocols has no version from ssl_minimum_version={oldest!r} on"
    for option, needed in (
        ("ssl_keyfile", "ssl_certfile"),
        ("ssl_password", "ssl_certfile"),
        ("ssl_keystore_password", "ssl_certfile"),
        ("ssl_truststore_password", "ssl_cafile"),
    ):
        if values[option] is not None and values[needed] is None:
            yield f"{option} is set without {needed}"


def _meaningless(given: Iterable[str], protocol: str, better: str) -> str:
    return (
        f"{', '.join(given)} has no effect with security_protocol={protocol!r};"
        f" set security_protocol={better!r}"
    )


def _sasl(reader: OptionReader) -> Iterable[str]:
    values, protocol = reader.values, reader.values["security_protocol"]
    mechanism = values["sasl_mechanism"]
    given = _set(reader, _SASL)
    if not protocol.startswith("SASL"):
        if given:
            better = "SASL_SSL" if protocol == "SSL" else "SASL_PLAINTEXT"
            yield _meaningless(given, protocol, better)
        return
    if mechanism is None:
        yield f"security_protocol={protocol!r} needs sasl_mechanism: {', '.join(_BY_MECHANISM)}"
        return
    own = ("sasl_mechanism", "sasl_jaas_config", *_BY_MECHANISM[mechanism])
    if foreign := [name for name in given if name not in own]:
        yield f"{', '.join(foreign)} has no effect with sasl_mechanism={mechanism!r}"
    yield from _missing(reader, mechanism)
    module, package = _PACKAGES.get(mechanism, ("", ""))
    if module and not is_installed(module):
        yield (
            f"sasl_mechanism={mechanism!r} needs the package {module}, which is not installed:"
            f" pip install '{package}'"
        )
    if protocol == "SASL_PLAINTEXT" and mechanism in ("PLAIN", "OAUTHBEARER", "AWS_MSK_IAM"):
        _log.warning("%s sends its secret unencrypted: use security_protocol='SASL_SSL'", mechanism)


def _missing(reader: OptionReader, mechanism: str) -> Iterable[str]:
    if _BY_MECHANISM[mechanism] == _LOGIN:
        yield from _missing_login(reader, mechanism)
    elif mechanism == "OAUTHBEARER":
        yield from _missing_token(reader)


def _missing_login(reader: OptionReader, mechanism: str) -> Iterable[str]:
    pair = _set(reader, _LOGIN[:2])
    if reader.values["sasl_credentials"] is not None:
        if pair:
            yield f"sasl_credentials provides user and password: omit {' and '.join(pair)}"
    elif missing := [name for name in _LOGIN[:2] if name not in pair]:
        yield f"sasl_mechanism={mechanism!r} needs {' and '.join(missing)}"


def _missing_token(reader: OptionReader) -> Iterable[str]:
    client = _set(reader, _CLIENT)
    if reader.values["sasl_oauth_token_provider"] is not None:
        if client:
            yield f"sasl_oauth_token_provider provides the token: omit {', '.join(client)}"
    elif not client:
        yield (
            f"sasl_mechanism='OAUTHBEARER' needs sasl_oauth_token_provider, or {', '.join(_CLIENT)}"
        )
    elif missing := [name for name in _CLIENT if name not in client]:
        yield f"{' and '.join(client)} is set without {' and '.join(missing)}"
    else:
        yield from _endpoint(exposed(reader.values["sasl_oauthbearer_token_endpoint_url"]))


def is_issuer(url: str) -> bool:
    """Whether ``url`` is https or on this machine. Other URLs could read files (CVE-2025-27817)."""
    found = _ENDPOINT.fullmatch(url)
    if found is None or not 0 < int(found["port"] or 1) <= MAX_PORT:
        return False
    return found["scheme"].lower() == "https" or found["host"].lower() in _THIS_MACHINE


def _endpoint(url: str) -> Iterable[str]:
    if not is_issuer(url):
        yield f"{_CLIENT[0]}: expected https://HOST/..., or http on this machine"
    elif not is_installed("urllib3"):
        yield f"{_CLIENT[0]} needs the package kprod[oauth], which is not installed"


def _ways(reader: OptionReader) -> Iterable[str]:
    """Problems with proxies and Unix sockets."""
    values = reader.values
    transport, path = values["transport"], values["unix_socket_path"]
    proxy = exposed(values["proxy_url"])
    if proxy is not None:
        if transport != "tcp":
            yield "proxy_url needs transport='tcp'"
        if not _is_proxy(proxy):
            yield (
                "proxy_url: expected socks5://, socks5h:// or http://[user:password@]host:port; in"
                " user and password write %2F for a slash, %3F for ?, %23 for # and %5B for ["
            )
        elif proxy.startswith("socks") and not is_installed("python_socks"):
            yield "proxy_url: socks5 needs the package kprod[proxy], which is not installed"
    if path is not None and transport != "unix":
        yield "unix_socket_path needs transport='unix'"
    if path is None and transport == "unix":
        yield "transport='unix' needs unix_socket_path"


def _is_proxy(url: str) -> bool:
    """Whether ``url`` is a complete proxy address; no error quotes it, because of passwords."""
    from urllib.parse import urlsplit  # takes 2 ms, needed for a proxy only

    try:
        found = urlsplit(url)
        port = found.port
    except ValueError:
        return False
    placed = bool(found.hostname) and (found.scheme == "http" if port is None else port > 0)
    # Text after the host is most likely the rest of an unescaped password.
    whole = found.path in ("", "/") and not found.query and not found.fragment
    return placed and whole and url.startswith(("socks5://", "socks5h://", "http://"))
