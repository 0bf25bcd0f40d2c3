"""Listeners of Apache Kafka for TLS and for every SASL mechanism."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.support.apache_kafka.broker import Guards
from tests.support.certificates import Certificates
from tests.support.guarded_broker import PASSWORD, USER
from tests.support.kerberos_realm import SERVICE, KerberosRealm

MODULE = "org.apache.kafka.common.security.{} required {};"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required {};"
ODD_USER = "carol"
ODD_PASSWORD = "½ ﬁ a\u00a0b soft\u00adhyphen 🔑 كلمة-1 e\u0301"
"""Text that SASLprep (RFC 4013) changes or forbids; brokers do not apply SASLprep."""
PROTOCOLS = {
    "TLS": "SSL",
    "MTLS": "SSL",
    "PLAIN": "SASL_SSL",
    "SCRAM": "SASL_SSL",
    "OAUTH": "SASL_SSL",
}


def java_keystore(certificates: Certificates) -> str:
    """The server's key as PKCS#8, the format that Java reads."""
    data = Path(certificates.server).read_bytes()
    key = load_pem_private_key(data, None)
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = certificates.folder / "java.pem"
    path.write_bytes(plain + data[data.index(b"-----BEGIN CERTIFICATE") :])
    return str(path)


def guards(certificates: Certificates) -> Guards:
    properties: dict[str, object] = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": java_keystore(certificates),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates.ca,
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.plain.sasl.jaas.config": MODULE.format(
            "plain.PlainLoginModule", f'user_{USER}="{PASSWORD}"'
        ),
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.oauth.oauthbearer.sasl.jaas.config": MODULE.format(
            "oauthbearer.OAuthBearerLoginModule", 'unsecuredLoginStringClaim_sub="broker"'
        ),
        "listener.name.oauth.oauthbearer.connections.max.reauth.ms": 3000,
        "listener.name.scram.scram-sha-256.connections.max.reauth.ms": 1500,
        "listener.name.scram.scram-sha-256.sasl.jaas.config": MODULE.format(
            "scram.ScramLoginModule", ""
        ),
        "listener.name.scram.scram-sha-512.sasl.jaas.config": MODULE.format(
            "scram.ScramLoginModule", ""
        ),
    }
    users = [
        f"{mechanism}=[name={name},password={password}]"
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for name, password in ((USER, PASSWORD), (ODD_USER, ODD_PASSWORD))
    ]
    return Guards(PROTOCOLS, properties, users)


def with_kerberos(guards: Guards, realm: KerberosRealm) -> Guards:
    """Add a listener for tickets of that realm; logins last for a second."""
    login = KERBEROS.format(
        f'useKeyTab=true storeKey=true keyTab="{realm.keytab}" principal="{SERVICE}@{realm.name}"'
    )
    properties = {
        "listener.name.kerberos.sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.kerberos.sasl.kerberos.service.name": "kafka",
        "listener.name.kerberos.gssapi.sasl.jaas.config": login,
        "listener.name.kerberos.gssapi.connections.max.reauth.ms": 1000,
    }
    return Guards(
        guards.protocols | {"KERBEROS": "SASL_SSL"},
        guards.properties | properties,
        guards.users,
        (*guards.java, f"-Djava.security.krb5.conf={realm.config}"),
    )
