"""A fake schema registry on loopback: Confluent's API in memory, with failures on demand."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID, uuid5

from tests.support.http_service import Answer, Asked, HttpService

JSON = "application/vnd.schemaregistry.v1+json"
SPACE = UUID(int=31)
SILENCE = -1
"""A status: the request is never answered."""


Reply = tuple[int, Any]


class FakeRegistry(HttpService):
    """Assigns ids in the order of registration.

    ``odd`` may override the answer to a request; None means the usual one. ``asked`` lists the
    requests. ``guids``: schemas have GUIDs, as in Confluent's from version 8 on. ``certfile``:
    HTTPS.
    """

    def __init__(self, *, guids: bool = False, certfile: str | None = None) -> None:
        super().__init__(certfile)
        self.guids = guids
        self.odd: Callable[[Asked], Reply | None] = lambda _asked: None
        self.asked: list[Asked] = []
        self.ids: list[str] = []  # schema with references, at index id - 1
        self.subjects: dict[str, list[int]] = {}  # ids by version
        self._lock = threading.Lock()

    def paths(self) -> list[str]:
        return [f"{asked.method} {asked.path}" for asked in self.asked]

    def register(self, subject: str, schema: Mapping[str, Any]) -> int:
        """Register a schema directly; its id."""
        whole = json.dumps(schema, sort_keys=True)
        if whole not in self.ids:
            self.ids.append(whole)
        number = self.ids.index(whole) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, asked: Asked) -> Answer | None:
        asked = asked._replace(body=json.loads(asked.body) if asked.body else None)
        with self._lock:
            self.asked.append(asked)
            odd = self.odd(asked)
            status, body = self._usual(asked) if odd is None else odd
        if status == SILENCE:
            return None
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return Answer(status, data, (("content-type", JSON),))

    def _usual(self, asked: Asked) -> Reply:
        path = unquote(urlsplit(asked.path).path)
        if match := re.fullmatch(r"/subjects/(.+)/versions/(latest|\d+)", path):
            return self._version(match[1], match[2])
        if match := re.fullmatch(r"/subjects/(.+)/versions", path):
            return self._new(match[1], asked.body)
        if match := re.fullmatch(r"/subjects/(.+)", path):
            return self._found(match[1], asked.body)
        if match := re.fullmatch(r"/schemas/ids/(\d+)", path):
            return self._by_id(int(match[1]))
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _by_id(self, number: int) -> Reply:
        if 0 < number <= len(self.ids):
            return 200, json.loads(self.ids[number - 1])
        return 404, {"error_code": 40403, "message": f"Schema {number} not found"}

    def _new(self, subject: str, schema: Any) -> Reply:
        return 200, {"id": self.register(subject, schema), **self._guid(schema)}

    def _found(self, subject: str, schema: Any) -> Reply:
        whole = json.dumps(schema, sort_keys=True)
        versions = self.subjects.get(subject, [])
        if whole in self.ids and (number := self.ids.index(whole) + 1) in versions:
            return self._version(subject, str(versions.index(number) + 1))
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _version(self, subject: str, version: str) -> Reply:
        versions = self.subjects.get(subject)
        if versions is None:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        number = len(versions) if version == "latest" else int(version)
        if number > len(versions):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        schema = json.loads(self.ids[versions[number - 1] - 1])
        found = {"subject": subject, "version": number, "id": versions[number - 1], **schema}
        return 200, {**found, **self._guid(schema)}

    def _guid(self, schema: Mapping[str, Any]) -> dict[str, str]:
        text = json.dumps(schema, sort_keys=True)
        return {"guid": str(uuid5(SPACE, text))} if self.guids else {}
