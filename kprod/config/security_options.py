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

SECURITY_ROWS = (
    Option(
        "security_protocol",
        "PLAINTEXT",
        _PROTOCOL,
        "How to talk to brokers: in the clear or by TLS (`SSL`), and whether to log in (`SASL_`).",
    ),
    Option(
        "ssl_context",
        None,
        Plugged("ssl.SSLContext", "an ssl.SSLContext for clients", "wrap_bio"),
        "A context of the application's own, instead of all other `ssl_` options.",
    ),
    Option(
        "ssl_cafile",
        None,
        PathOrText(_CERTIFICATES),
        "Certificates to trust: of authorities, or the brokers' own. None: those that the system"
        " trusts. Read again for new connections when the file has changed.",
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
        "Our own certificate, and those it was issued by, for brokers that ask for one. Read again"
        " for new connections when the file has changed.",
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
        "The private key of that certificate, if it is not in the same file.",
        ("ssl.key.location", "ssl.key.pem", "ssl.keystore.key"),
        secret=True,
    ),
    Option(
        "ssl_password",
        None,
        _SECRET,
        "Decrypts the private key.",
        ("ssl.key.password",),
        secret=True,
    ),
    Option(
        "ssl_crlfile",
        None,
        PathOrText("the path of a PEM file, or PEM text"),
        "Revocation lists: a broker's certificate must not be on that of its issuer.",
        ("ssl.crl.location",),
    ),
    Option(
        "ssl_ciphers",
        None,
        Text("cipher suites as OpenSSL lists them"),
        "Cipher suites for TLS 1.2; those of TLS 1.3 are all good.",
        ("ssl.cipher.suites",),
    ),
    Option(
        "ssl_minimum_version",
        "TLSv1.2",
        _VERSIONS,
        "The oldest version of TLS; the newest that both ends know is used.",
    ),
    Option(
        "ssl_enabled_protocols",
        None,
        TlsVersions(),
        "The versions of TLS to choose from; older ones in the list are passed over. None: all that"
        " `ssl_minimum_version` allows.",
    ),
    Option(
        "ssl_check_hostname",
        True,
        HostnameCheck(),
        "Whether a broker's certificate has to be for the name or address it is reached by.",
        ("ssl.endpoint.identification.algorithm",),
    ),
    Option(
        "enable_ssl_certificate_verification",
        True,
        Truth(),
        "False: any certificate will do, so that anybody on the way may read and write everything.",
    ),
    Option(
        "sasl_mechanism",
        None,
        _MECHANISM,
        "How to log in. The broker's list of mechanisms never changes it.",
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
        "Password of `PLAIN` and `SCRAM-*`. A callable is asked for every connection.",
        ("sasl.password",),
        secret=True,
    ),
    Option(
        "sasl_credentials",
        None,
        Plugged("callable", "a callable() -> (username, password)", "__call__"),
        "Tells user and password together, for every connection: so that both can be changed.",
    ),
    Option(
        "sasl_jaas_config",
        None,
        _SECRET,
        "Java's way to write the login: the options of its usual login modules are taken from it.",
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
        "Tells the token of `OAUTHBEARER`: text, or a pair of text and the time it expires at, in"
        " seconds since 1970. Runs in a thread of its own; may also have `extensions()`.",
        ("oauth_cb",),
    ),
    Option(
        "sasl_oauthbearer_token_endpoint_url",
        None,
        Url("an https:// URL"),
        "Where tokens of `OAUTHBEARER` are fetched from (client credentials grant, RFC 6749, 4.4).",
        secret=True,
    ),
    Option(
        "sasl_oauthbearer_client_id",
        None,
        Text("an identifier"),
        "The client that asks for the token.",
        ("sasl.oauthbearer.client.credentials.client.id",),
    ),
    Option(
        "sasl_oauthbearer_client_secret",
        None,
        _SECRET,
        "The secret of that client.",
        ("sasl.oauthbearer.client.credentials.client.secret",),
        secret=True,
    ),
    Option("sasl_oauthbearer_scope", None, Text("scopes"), "What the token should allow."),
    Option(
        "sasl_oauthbearer_cafile",
        None,
        PathOrText("the path of a PEM file, or PEM text"),
        "Certificates of authorities to trust for the token endpoint. None: those that the system"
        " trusts.",
        ("https.ca.location", "https.ca.pem"),
    ),
    Option(
        "sasl_oauthbearer_extensions",
        None,
        Extensions(),
        "Further names and values for the broker (KIP-342), for instance `logicalCluster`.",
    ),
    Option(
        "sasl_msk_region",
        None,
        Text("a region of AWS"),
        "Region of `AWS_MSK_IAM`. None takes the region the host name of the broker tells.",
    ),
    Option(
        "sasl_kerberos_service_name",
        "kafka",
        Text("a name"),
        "First part of the brokers' Kerberos principals, for `GSSAPI`.",
    ),
    Option(
        "sasl_kerberos_name",
        None,
        Text("a principal"),
        "Our own principal in Kerberos. None takes that of the ticket cache.",
        ("sasl.kerberos.principal",),
    ),
    Option(
        "sasl_kerberos_domain_name",
        None,
        Text("a host name"),
        "Host in the brokers' principals, if it is not the one they are reached by.",
    ),
    Option(
        "proxy_url",
        None,
        Url('"socks5://[user:password@]host:port", "socks5h://..." or "http://..."'),
        "A proxy all connections go through. `socks5h` has it resolve the brokers' names, too, and"
        " so has `http`, which is asked to CONNECT. SOCKS needs the package python-socks.",
        ("socks5_proxy",),
        secret=True,
    ),
    Option(
        "unix_socket_path",
        None,
        Text("a path"),
        'With `transport="unix"`: the socket that leads to a broker; `{host}` and `{port}` in it'
        " stand for the broker's.",
    ),
)
