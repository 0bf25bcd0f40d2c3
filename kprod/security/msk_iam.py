"""AWS_MSK_IAM: a request to AWS, signed with its credentials, serves as the token.

Source: the package aws-msk-iam-sasl-signer-python; brokers of MSK take it by OAUTHBEARER.
"""

from __future__ import annotations

import re

from kprod.errors import ConfigError, SaslAuthenticationError

WIRE_NAME = "OAUTHBEARER"
_NO_CREDENTIALS = (
    "AWS_MSK_IAM: there are no credentials of AWS: neither in the environment (AWS_ACCESS_KEY_ID,"
    " AWS_SECRET_ACCESS_KEY), nor in a profile, nor from a role of this machine"
)
_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?$")


class MskTokens:
    """A token provider for one broker. Any thread."""

    def __init__(self, host: str, region: str | None) -> None:
        self._region = region or _region_of(host)

    def token(self) -> tuple[str, float]:
        """A token and when it expires. Raises SaslAuthenticationError when there are no
        credentials; what boto3 raises for credentials it cannot get goes on.
        """
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

        try:
            token, expires_ms = MSKAuthTokenProvider.generate_auth_token(self._region)
        except AttributeError:  # the signer takes the None that botocore returns for credentials
            raise SaslAuthenticationError(_NO_CREDENTIALS) from None
        return token, expires_ms / 1000


def _region_of(host: str) -> str:
    found = _REGION.search(host.rstrip("."))
    if found is None:
        raise ConfigError(f"no region of AWS is told by the host {host!r}; set sasl_msk_region")
    return found[1]
