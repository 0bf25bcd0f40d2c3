"""The documented ways to ship kprod to executors, run outside the checkout.

Each makes an environment from a wheel of this checkout, and starts a cluster: ``make campaign``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from kprod.broker import EmbeddedBroker
from tests.spark.driver_process import OF_CAMPAIGNS, ROOT, SETTINGS, every_row, standalone, values

pytestmark = OF_CAMPAIGNS

ROWS = 10_000
RECIPE = re.compile(r'^```console title="([a-z-]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
RECIPES = dict(RECIPE.findall((ROOT / "docs" / "spark-operation.md").read_text()))
JOB = Path(__file__).with_name("shipped_job.py")

BARE = {name: text for name, text in SETTINGS.items() if name != "spark.executorEnv.PYTHONPATH"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this checkout, of the extensions that are compiled already."""
    folder = tmp_path_factory.mktemp("wheel")
    for package in ("kprod", "kprod_ext"):
        for extension in (ROOT / package).rglob("*.so"):
            copy = folder / "lib" / extension.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(extension, copy)  # newer than its source: it is not compiled again
    build = ["build", f"--build-lib={folder}/lib", f"--build-temp={folder}/temp"]
    pack = ["bdist_wheel", f"--bdist-dir={folder}/bdist", f"--dist-dir={folder}"]
    subprocess.run([sys.executable, "setup.py", "--quiet", *build, *pack], cwd=ROOT, check=True)
    (made,) = folder.glob("kprod-*.whl")
    return made


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Environment variables: ``spark-submit`` uses a cluster, ``python`` has no packages."""
    spark, workers, conf = Path(pyspark.__file__).parent, tmp_path / "workers", tmp_path / "conf"
    # Python workers without pyspark among their packages find it in the archive of a whole Spark.
    monkeypatch.setenv("SPARK_HOME", str(spark))
    for folder in (workers, conf, tmp_path / "job"):
        folder.mkdir()
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {Path(sys.executable).resolve()} "$@"\n')
    python.chmod(0o755)
    shutil.copy(JOB, tmp_path / "job" / "job.py")
    hidden = {"PYTHONPATH", "PYTHONHOME", "PYSPARK_PYTHON", "VIRTUAL_ENV"}
    with standalone(workers) as address:
        unpacked = {"spark.executorEnv.PEX_ROOT": str(tmp_path / "pex")}
        settings = BARE | unpacked | {"spark.master": address}
        lines = [f"{name} {value}\n" for name, value in settings.items()]
        (conf / "spark-defaults.conf").write_text("".join(lines))
        yield {name: value for name, value in os.environ.items() if name not in hidden} | {
            "PATH": f"{tmp_path}/bin:{spark}/bin:/usr/bin:/bin",
            "PEX_ROOT": str(tmp_path / "pex"),
            "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
            "SPARK_CONF_DIR": str(conf),
            "SPARK_HOME": str(spark),
            "SPARK_SCALA_VERSION": "2.13",
        }


def with_wheel(recipe: str, wheel: Path) -> str:
    """The commands, with this wheel in the place of the one in the folder."""
    given = rf"\1 --constraint {ROOT / 'constraints.txt'} {wheel}"
    commands, count = re.subn(r"(pip install|bin/pex) \./kprod-\*\.whl", given, recipe)
    assert count == 1, recipe
    return commands


@pytest.mark.parametrize("name", ["venv-pack", "pex"])
def test_a_shipped_environment_writes_all_rows(
    name: str, wheel: Path, cluster: dict[str, str], tmp_path: Path
) -> None:
    with EmbeddedBroker(default_partitions=3) as broker:
        commands = with_wheel(RECIPES[name], wheel).replace(
            "job.py", f"job.py {broker.bootstrap_servers} {ROWS}"
        )
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=tmp_path / "job",
            env=cluster,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr[-4_000:]
        for topic in ("written", "saved", "mapped"):
            assert values(broker.bootstrap_servers, topic) == every_row(ROWS), topic
    # An archive is unpacked in the executor's own folder, a PEX once on each machine.
    shipped = tmp_path / ("workers" if name == "venv-pack" else "pex")
    for where in json.loads(ended.stdout.splitlines()[-1]):
        assert all(Path(path).is_relative_to(shipped) for path in where), where
