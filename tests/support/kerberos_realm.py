"""A realm of MIT Kerberos with its own KDC on loopback, by k5test."""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path
from typing import Any, Self

from tests.support.maven import skip
from tests.support.ports import HeldPort

PROGRAMS = ("krb5kdc", "kadmin.local", "kdb5_util", "kinit")
SERVICE = "kafka/127.0.0.1"


def needed() -> None:
    """Skip the test if Kerberos is not installed; fail it if ``CI`` is set."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    try:
        import gssapi  # noqa: F401

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape sequence in its source
            import k5test  # noqa: F401
    except ImportError as error:
        missing.append(str(error))
    if missing:
        skip(f"Kerberos is tested with krb5-kdc and the extra kerberos: {', '.join(missing)}")


class KerberosRealm:
    """A user with a password, and the principal ``SERVICE`` with a key tab for brokers.

    ``environment``: variables for programs that log in. The ticket cache is empty until
    ``fetch_ticket``.
    """

    def __init__(self) -> None:
        needed()
        import k5test

        os.environ["PATH"] += ":/usr/sbin"
        self._port = HeldPort()
        address = f"127.0.0.1:{self._port.number}"
        self._realm: Any = k5test.K5Realm(
            portbase=self._port.number,
            krb5_conf={
                "libdefaults": {
                    "dns_canonicalize_hostname": "false",
                    "dns_lookup_kdc": "false",
                    "rdns": "false",
                    "udp_preference_limit": "1",
                },
                "realms": {"$realm": {"kdc": address}},
            },
            kdc_conf={"realms": {"$realm": {"kdc_listen": address, "kdc_tcp_listen": address}}},
            create_host=False,
            get_creds=False,
            start_kdc=False,
        )
        self.name: str = self._realm.realm
        self.keytab: str = self._realm.keytab
        self.config = Path(self._realm.tmpdir, "krb5.conf")
        self.environment = {
            "KRB5_CONFIG": str(self.config),
            "KRB5CCNAME": f"FILE:{self._realm.ccache}",
        }

    def __enter__(self) -> Self:
        self._realm.addprinc(f"{SERVICE}@{self.name}")
        self._realm.extract_keytab(f"{SERVICE}@{self.name}", self.keytab)
        self.start()
        return self

    def start(self) -> None:
        """Start the KDC, and wait until it answers."""
        self._realm.start_kdc()

    def stop(self) -> None:
        self._realm.stop_kdc()

    def fetch_ticket(self) -> None:
        """Replace the cached ticket by a new one of the user."""
        self._realm.kinit(self._realm.user_princ, self._realm.password("user"))

    def drop_ticket(self) -> None:
        Path(self._realm.ccache).unlink(missing_ok=True)

    def __exit__(self, *_: object) -> None:
        self._realm.stop()
        self._port.release()
