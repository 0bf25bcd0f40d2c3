"""The options of TLS, SASL and proxies: rows of the table of options."""

from __future__ import annotations

from kprod.config.kinds import (
    TLS_VERSIONS,
    Choice,
    Extensions,
    HostnameCheck,
    PathOrText,
    Plugged,
    SecretText,
    Text,
    TlsVersions,
    Truth,
    Url,
)
from kprod.config.option import Option

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI")

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PROTOCOL = Choice(
    {name.lower(): name for name in _PROTOCOLS}, "str", ", ".join(f'"{p}"' for p in _PROTOCOLS)
)
_MECHANISM = Choice(
    {None: None, **{name.lower(): name for name in MECHANISMS}},
    "str or None",
    ", ".join(f'"{name}"' for name in MECHANISMS),
)
_VERSIONS = Choice(TLS_VERSIONS, "str", '"TLSv1.2" or "TLSv1.3"')
_SECRET = SecretText()
_CERTIFICATES = "the path of a PEM or PKCS#12 file, or PEM text"
_TRUSTED = "the path of a PEM or PKCS#12 file, or of a directory, or PEM text"

SECURITY_ROWS = (
    Option(
        "security_protocol",
        "PLAINTEXT",
        _PROTOCOL,
        "How to connect to brokers: plain text or TLS (`SSL`), with or without a login (`SASL_`).",
    ),
    Option(
        "ssl_context",
        None,
        Plugged("ssl.SSLContext", "an ssl.SSLContext for clients", "wrap_bio"),
        "A custom context, instead of all other `ssl_` options.",
    ),
    Option(
        "ssl_cafile",
        None,
        PathOrText(_TRUSTED),
        "Certificates to trust: of authorities, or the brokers' own. None: those that the system"
        " trusts. The file is read again for new connections when it has changed. A directory must"
        " be prepared by `openssl rehash`.",
        (
            "ssl.ca.location",
            "ssl.ca.pem",
            "ssl.truststore.location",
            "ssl.truststore.certificates",
        ),
    ),
    Option(
        "ssl_truststore_password",
        None,
        _SECRET,
        "Opens the PKCS#12 store that `ssl_cafile` names.",
        secret=True,
    ),
    Option(
        "ssl_certfile",
        None,
        PathOrText(_CERTIFICATES),
        "The client's certificate with its chain, for brokers that require one. The file is read"
        " again for new connections when it has changed.",
        (
            "ssl.certificate.location",
            "ssl.certificate.pem",
            "ssl.keystore.location",
            "ssl.keystore.certificate.chain",
        ),
        secret=True,
    ),
    Option(
        "ssl_keystore_password",
        None,
        _SECRET,
        "Opens the PKCS#12 store that `ssl_certfile` names.",
        secret=True,
    ),
    Option(
        "ssl_keyfile",
        None,
        PathOrText("the path of a PEM file, or PEM text"),
        "The private key of the client's certificate, if it is not in the same file.",
        ("ssl.key.location", "ssl.key.pem", "ssl.keystore.key"),
        secret=True,
    ),
    Option(
        "ssl_password",
        None,
        _SECRET,
        "Password of the private key.",
        ("ssl.key.password",),
        secret=True,
    ),
    Option(
        "ssl_crlfile",
        None,
        PathOrText("the path of a PEM file, or PEM text"),
        "Certificate revocation lists: a broker's certificate must not be on its issuer's list.",
        ("ssl.crl.location",),
    ),
    Option(
        "ssl_ciphers",
        None,
        Text("cipher suites as OpenSSL lists them"),
        "Cipher suites for TLS 1.2; those of TLS 1.3 are not restricted.",
        ("ssl.cipher.suites",),
    ),
    Option(
        "ssl_minimum_version",
        "TLSv1.2",
        _VERSIONS,
        "The oldest version of TLS; the newest that both sides support is used.",
    ),
    Option(
        "ssl_enabled_protocols",
        None,
        TlsVersions(),
        "The versions of TLS to choose from; older ones in the list are ignored. None: all that"
        " `ssl_minimum_version` allows.",
    ),
    Option(
        "ssl_check_hostname",
        True,
        HostnameCheck(),
        "Whether a broker's certificate must match the host name or address of the connection.",
        ("ssl.endpoint.identification.algorithm",),
    ),
    Option(
        "enable_ssl_certificate_verification",
        True,
        Truth(),
        "False accepts any certificate: anyone on the network path can then read and change data.",
    ),
    Option(
        "sasl_mechanism",
        None,
        _MECHANISM,
        "How to log in. It is never changed to another mechanism that a broker offers.",
        ("sasl.mechanisms",),
    ),
    Option(
        "sasl_plain_username",
        None,
        Text("a name"),
        "User of `PLAIN` and `SCRAM-*`.",
        ("sasl.username",),
    ),
    Option(
        "sasl_plain_password",
        None,
        _SECRET,
        "Password of `PLAIN` and `SCRAM-*`. A callable is called for every connection.",
        ("sasl.password",),
        secret=True,
    ),
    Option(
        "sasl_credentials",
        None,
        Plugged("callable", "a callable() -> (username, password)", "__call__"),
        "Returns user and password together, for every connection, so that both can change.",
    ),
    Option(
        "sasl_jaas_config",
        None,
        _SECRET,
        "The login in Java's syntax: the options of Java's usual login modules are read from it.",
        secret=True,
    ),
    Option(
        "sasl_oauth_token_provider",
        None,
        Plugged(
            "callable or object",
            "a callable() -> token, or an object with token()",
            "token",
            "__call__",
        ),
        "Returns the token of `OAUTHBEARER`: text, or a pair of text and expiry time in seconds"
        " since 1970. Called in a separate thread; may also have `extensions()`.",
        ("oauth_cb",),
    ),
    Option(
        "sasl_oauthbearer_token_endpoint_url",
        None,
        Url("an https:// URL"),
        "Endpoint for tokens of `OAUTHBEARER` (client credentials grant, RFC 6749, 4.4).",
        secret=True,
    ),
    Option(
        "sasl_oauthbearer_client_id",
        None,
        Text("an identifier"),
        "The client id of the token request.",
        ("sasl.oauthbearer.client.credentials.client.id",),
    ),
    Option(
        "sasl_oauthbearer_client_secret",
        None,
        _SECRET,
        "The client secret of the token request.",
        ("sasl.oauthbearer.client.credentials.client.secret",),
        secret=True,
    ),
    Option("sasl_oauthbearer_scope", None, Text("scopes"), "The scope of the token request."),
    Option(
        "sasl_oauthbearer_cafile",
        None,
        PathOrText("the path of a PEM file or of a directory, or PEM text"),
        "Certificates of authorities to trust for the token endpoint. None: those that the system"
        " trusts.",
        ("https.ca.location", "https.ca.pem"),
    ),
    Option(
        "sasl_oauthbearer_extensions",
        None,
        Extensions(),
        "SASL extensions for the broker (KIP-342), for example `logicalCluster`.",
    ),
    Option(
        "sasl_msk_region",
        None,
        Text("a region of AWS"),
        "Region of `AWS_MSK_IAM`. None: the region in the broker's host name.",
    ),
    Option(
        "sasl_kerberos_service_name",
        "kafka",
        Text("a name"),
        "Service name: the first part of the brokers' Kerberos principals, for `GSSAPI`.",
    ),
    Option(
        "sasl_kerberos_name",
        None,
        Text("a principal"),
        "The client's Kerberos principal. None: that of the ticket cache.",
        ("sasl.kerberos.principal",),
    ),
    Option(
        "sasl_kerberos_domain_name",
        None,
        Text("a host name"),
        "Host name in the brokers' principals, if it differs from that of the connection.",
    ),
    Option(
        "proxy_url",
        None,
        Url('"socks5://[user:password@]host:port", "socks5h://..." or "http://..."'),
        "A proxy for all connections. With `socks5h` and `http` (CONNECT), the proxy also resolves"
        " the brokers' names. SOCKS needs the package python-socks.",
        ("socks5_proxy",),
        secret=True,
    ),
    Option(
        "unix_socket_path",
        None,
        Text("a path"),
        'With `transport="unix"`: the path of a broker\'s socket; `{host}` and `{port}` in it are'
        " replaced by the broker's.",
    ),
)
