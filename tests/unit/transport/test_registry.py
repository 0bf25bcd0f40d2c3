from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kprod.errors import ConfigError
from kprod.transport import register
from kprod.transport.memory import MemoryBackend
from kprod.transport.registry import open_backend


def test_a_registered_name_is_known_and_the_last_registration_counts() -> None:
    made: list[str] = []

    def factory_of(word: str) -> MemoryBackend:
        made.append(word)
        return MemoryBackend({})

    register("test-transport", lambda **options: factory_of("first"))
    register("test-transport", lambda **options: factory_of(options["word"]))
    open_backend("test-transport", word="second")
    assert made == ["second"]


@pytest.mark.parametrize(("name", "factory"), [("", MemoryBackend), ("named", "not callable")])
def test_what_cannot_be_a_transport_is_not_registered(name: str, factory: Any) -> None:
    with pytest.raises(ConfigError, match="transport"):
        register(name, factory)


def installed(folder: Path, target: str) -> None:
    """An installed package that names ``target`` as the transport "parcel"."""
    info = folder / "parcels-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: parcels\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[kprod.transports]\nparcel = {target}\n")


def test_an_installed_package_brings_a_transport(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, "kprod.transport.memory:MemoryBackend")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert isinstance(open_backend("parcel", listeners={}), MemoryBackend)


def test_an_entry_point_that_is_no_factory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, "kprod.transport.memory:__doc__")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"'parcel'.*cannot be called"):
        open_backend("parcel")


def test_an_unknown_name_is_told_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match=r"'memry' is unknown.*tcp.*did you mean 'memory'\?"):
        open_backend("memry")
    with pytest.raises(ConfigError, match=r"'xyz' is unknown, there are memory, proxy, tcp"):
        open_backend("xyz")


def test_the_registry_loads_no_sockets() -> None:
    code = "import sys; import kprod.transport; assert 'kprod.transport.tcp' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
