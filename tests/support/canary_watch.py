"""Watches for secrets of the tests in what anybody could read: a plugin for ``KPROD_CANARIES=1``.

Everything is logged at DEBUG then. After each test its log, with tracebacks, what it printed, and
the ``repr`` of every object of kprod's that is still there are searched for the secrets.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator

import pytest

SECRETS = (
    "canary-pa55word",  # guarded_broker
    "canary-5ecret-Zx9",  # test_no_secret_is_told
    "canary %client&secret",  # token_server
    "canary+%25client%26secret",
    "canary-aws-5ecret",  # test_msk_iam
    "open-sesame",  # certificates
    "eyJhbGciOiAibm9uZSJ9",  # how an unsigned token begins
    "PRIVATE KEY-----",
)
OURS = ("kprod.", "kprod_ext.")
ENABLED = pytest.StashKey["CanaryLog"]()


class CanaryLog(logging.Handler):
    """Keeps the texts with a secret in them; ``seen`` counts all."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(logging.Formatter("%(name)s %(threadName)s %(message)s"))
        self.seen = 0
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.look("log", self.format(record))

    def look(self, where: str, text: str) -> None:
        """Remember ``text`` if it tells a secret."""
        self.seen += 1
        if any(secret in text for secret in SECRETS):
            self.found.append(f"{where}: {text}")


def pytest_configure(config: pytest.Config) -> None:
    if "KPROD_CANARIES" in os.environ:
        config.stash[ENABLED] = log = CanaryLog()
        for logger in (logging.getLogger(), logging.getLogger("kprod")):
            logger.setLevel(logging.DEBUG)
        logging.getLogger().addHandler(log)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave out what was there before the first test: a million objects, looked at 8,000 times."""
    if ENABLED in session.config.stash:
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def _log_as_without_canaries(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    """Show a test what it would see otherwise: the loggers pass on DEBUG for our sake alone."""
    if ENABLED in request.config.stash:
        caplog.handler.setLevel(logging.WARNING)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    log = item.config.stash.get(ENABLED, None)
    if log is None or call.when != "call":
        return report
    for each in gc.get_objects():
        if _has_repr_of_ours(type(each)):
            log.look(f"repr of {type(each).__qualname__}", _repr(each))
    for title, content in report.sections:
        log.look(title, content)
    if log.found:
        report.outcome = "failed"
        report.longrepr = "\n".join(["secrets were told:", *log.found])
        log.found = []
    return report


_told_of: dict[type, bool] = {}


def _has_repr_of_ours(kind: type) -> bool:
    found = _told_of.get(kind)
    if found is None:
        written = any("__repr__" in vars(base) for base in kind.__mro__[:-1])
        found = _told_of[kind] = written and str(kind.__module__).startswith(OURS)
    return found


def _repr(each: object) -> str:
    try:
        return repr(each)
    except Exception as error:  # half-made objects have no repr
        return type(error).__name__


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    log = config.stash.get(ENABLED, None)
    if log is not None:
        terminalreporter.write_line(f"{log.seen} texts were searched for {len(SECRETS)} secrets")
