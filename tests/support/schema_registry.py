"""A schema registry on loopback: Confluent's API in memory, and failures as it is told"""

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
"""As a status: the request is never answered."""


Told = tuple[int, Any]


class FakeRegistry(HttpService):
    """Numbers schemas as they come.

    ``odd`` may be set meanwhile: it then tells the answer to a request, or None for the usual one.
    ``asked`` lists the requests. With ``guids`` schemas have GUIDs, as Confluent's have from
    version 8 on. With ``certfile`` it speaks HTTPS.
    """

    def __init__(self, *, guids: bool = False, certfile: str | None = None) -> None:
        super().__init__(certfile)
        self.guids = guids
        self.odd: Callable[[Asked], Told | None] = lambda _asked: None
        self.asked: list[Asked] = []
        self.ids: list[str] = []  # a schema with everything that belongs to it, at its id less 1
        self.subjects: dict[str, list[int]] = {}  # ids by version
        self._lock = threading.Lock()

    def paths(self) -> list[str]:
        return [f"{asked.method} {asked.path}" for asked in self.asked]

    def register(self, subject: str, schema: Mapping[str, Any]) -> int:
        """Put a schema there without asking anybody; the id."""
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
            status, told = self._usual(asked) if odd is None else odd
        if status == SILENCE:
            return None
        data = told if isinstance(told, bytes) else json.dumps(told).encode()
        return Answer(status, data, (("content-type", JSON),))

    def _usual(self, asked: Asked) -> Told:
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

    def _by_id(self, number: int) -> Told:
        if 0 < number <= len(self.ids):
            return 200, json.loads(self.ids[number - 1])
        return 404, {"error_code": 40403, "message": f"Schema {number} not found"}

    def _new(self, subject: str, schema: Any) -> Told:
        return 200, {"id": self.register(subject, schema), **self._guid(schema)}

    def _found(self, subject: str, schema: Any) -> Told:
        whole = json.dumps(schema, sort_keys=True)
        versions = self.subjects.get(subject, [])
        if whole in self.ids and (number := self.ids.index(whole) + 1) in versions:
            return self._version(subject, str(versions.index(number) + 1))
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _version(self, subject: str, version: str) -> Told:
        versions = self.subjects.get(subject)
        if versions is None:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        number = len(versions) if version == "latest" else int(version)
        if number > len(versions):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        schema = json.loads(self.ids[versions[number - 1] - 1])
        told = {"subject": subject, "version": number, "id": versions[number - 1], **schema}
        return 200, {**told, **self._guid(schema)}

    def _guid(self, schema: Mapping[str, Any]) -> dict[str, str]:
        text = json.dumps(schema, sort_keys=True)
        return {"guid": str(uuid5(SPACE, text))} if self.guids else {}
