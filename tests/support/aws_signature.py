"""Checks a token of AWS_MSK_IAM as MSK does: a request presigned by AWS Signature Version 4.

Implemented with hashlib from "Authenticating Requests: Using Query Parameters" (AWS documentation).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, quote, urlsplit

from kprod.broker import Grant, Refused

STAMP = "%Y%m%dT%H%M%SZ"


class SignedRequests:
    """``check`` is for ``Authentication(tokens=...)``; ``keys`` are secrets by access key."""

    def __init__(self, region: str, keys: dict[str, str]) -> None:
        self._region = region
        self._keys = keys
        self.seen: list[dict[str, str]] = []

    def check(self, token: str) -> Grant:
        """The principal and the expiry. Raises Refused with the reason."""
        url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
        asked = dict(parse_qsl(url.query, strict_parsing=True))
        self.seen.append(asked)
        host = f"kafka.{self._region}.amazonaws.com"
        if (url.scheme, url.netloc, url.path) != ("https", host, "/"):
            raise Refused(f"signed for {url.netloc}")
        if asked["Action"] != "kafka-cluster:Connect":
            raise Refused("signed for another action")
        key, day, *rest = asked["X-Amz-Credential"].split("/")
        if rest != [self._region, "kafka-cluster", "aws4_request"] or key not in self._keys:
            raise Refused("unknown credentials")
        signature = asked.pop("X-Amz-Signature")
        wanted = self._signature(self._keys[key], day, host, asked)
        asked["X-Amz-Signature"] = signature
        if not hmac.compare_digest(signature, wanted):
            raise Refused("the signature is wrong")
        begun = datetime.strptime(asked["X-Amz-Date"], STAMP).replace(tzinfo=UTC)
        expires = begun + timedelta(seconds=int(asked["X-Amz-Expires"]))
        return Grant(f"User:{key}", expires.timestamp())

    def _signature(self, secret: str, day: str, host: str, asked: dict[str, str]) -> str:
        # The user agent is added after signing.
        pairs = sorted(
            (quote(name, safe=""), quote(value, safe=""))
            for name, value in asked.items()
            if name != "User-Agent"
        )
        query = "&".join(f"{name}={value}" for name, value in pairs)
        nothing = hashlib.sha256(b"").hexdigest()
        request = f"GET\n/\n{query}\nhost:{host}\n\nhost\n{nothing}"
        scope = f"{day}/{self._region}/kafka-cluster/aws4_request"
        hashed = hashlib.sha256(request.encode()).hexdigest()
        key = b"AWS4" + secret.encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        text = f"AWS4-HMAC-SHA256\n{asked['X-Amz-Date']}\n{scope}\n{hashed}"
        return hmac.digest(key, text.encode(), "sha256").hex()
