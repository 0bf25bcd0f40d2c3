"""Where the demo's topic lives: someone's Kafka, or an embedded broker of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kprod.cli.demo.broker_process import BrokerProcess
from kprod.cli.demo.plan import Plan
from kprod.cli.demo.screen import Screen


@contextmanager
def home_of(plan: Plan, work: Path, screen: Screen) -> Iterator[str]:
    """The address of the broker for the block, which starts and stops it unless it is the user's.

    With ``keep`` it goes on after a block that ended well, and the user is told how to stop it.
    Raises DemoFailure when it does not start.
    """
    if plan.bootstrap_servers is not None:
        yield plan.bootstrap_servers
    elif plan.keep:
        yield from _kept(plan, work, screen)
    else:
        broker = BrokerProcess(plan.data_dir or work / "broker", work / "broker.log")
        try:
            yield broker.address()
        finally:
            broker.stop()


def _kept(plan: Plan, work: Path, screen: Screen) -> Iterator[str]:
    data = plan.data_dir or Path(tempfile.mkdtemp(prefix="kprod-demo-"))
    broker = BrokerProcess(data, work / "broker.log", outlives_us=True)
    try:
        address = broker.address()
        yield address
    except BaseException:
        broker.stop()
        if plan.data_dir is None:
            shutil.rmtree(data, ignore_errors=True)
        raise
    screen.say(f"The broker is still running on {address}, with its data in {data}")
    screen.say(
        f"  add to it:  echo hello | kprod produce --topic hello --bootstrap-servers {address}"
    )
    screen.say(f"  read it:    kcat -C -e -b {address} -t {plan.topic}")
    screen.say(f"  stop it:    kill {broker.pid}")
