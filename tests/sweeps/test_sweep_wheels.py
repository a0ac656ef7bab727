# SPDX-License-Identifier: MIT
"""The package on hosts that lack it: workers of an environment that has everything else."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import sampleblk_lab as lab
from sampleblk_lab.cli.main import main
from sampleblk_lab.sweeps import wheels

distributed = pytest.importorskip("distributed", reason="needs the extra 'sweep'")

from dask_cluster import Cluster  # noqa: E402  # needs distributed


def _wheel(folder: Path, version: str, text: str) -> Path:
    """One that installs without anything else."""
    files = {
        "sampleblk_lab/__init__.py": text,
        f"sampleblk_lab-{version}.dist-info/METADATA": (
            f"Metadata-Version: 2.1\nName: sampleblk-lab\nVersion: {version}\nProvides-Extra: sweep\n"
        ),
        f"sampleblk_lab-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(content)}")
    files[f"sampleblk_lab-{version}.dist-info/RECORD"] = "\n".join(
        [*record, f"sampleblk_lab-{version}.dist-info/RECORD,,"]
    )
    folder.mkdir(exist_ok=True)
    path = folder / f"sampleblk_lab-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers of an environment of its own, which has our packages but for this one."""
    here = tmp_path_factory.mktemp("cluster")
    subprocess.run([sys.executable, "-m", "venv", str(here / "env")], check=True)
    others = here / "others"
    others.mkdir()
    for path in Path(distributed.__file__).parents[1].iterdir():
        if "sampleblk_lab" not in path.name and path.suffix != ".pth":
            (others / path.name).symlink_to(path)
    made = Cluster(here, 2, python=str(here / "env/bin/python"), PYTHONPATH=str(others))
    yield made
    made.close()


def _imported() -> str:
    import sampleblk_lab

    return str(sampleblk_lab.WORD)  # type: ignore[attr-defined]


def _words(client: object) -> set[str]:
    import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        return set(client.run(_imported).values())  # type: ignore[attr-defined]
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def test_hosts_that_lack_it_get_it_once(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, other = _wheel(tmp_path / "a", "9.1", "WORD = 'first'"), _wheel(tmp_path / "b", "9.1", "WORD = 'other'")
    with cluster.client() as client:
        [row] = lab.sweeps.install(client, first)  # two workers, one environment
        assert (row["state"], row["version"], row["message"]) == (wheels.INSTALLED, "9.1", "")
        assert _words(client) == {"first"}
        [row] = lab.sweeps.install(client, first)
        assert row["state"] == wheels.THERE
        # The same version of another digest is another one, and workers that had imported it do not keep it.
        [row] = lab.sweeps.install(client, other)
        assert row["state"] == wheels.INSTALLED
        assert _words(client) == {"other"}
    assert main(["sweep", "install", str(other), "--scheduler", cluster.address, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    [row] = told["rows"] if isinstance(told, dict) else told
    assert row["state"] == "there"


def test_what_pip_refuses_is_told(cluster: Cluster, tmp_path: Path) -> None:
    wheel = _wheel(tmp_path, "9.2", "WORD = 'new'")
    broken = wheel.rename(wheel.with_name("sampleblk_lab-9.2-cp27-none-any.whl"))
    with cluster.client() as client:
        [row] = lab.sweeps.install(client, broken)
    assert row["state"] == wheels.FAILED
    assert "not a supported wheel" in row["message"]
    assert main(["sweep", "install", str(broken), "--scheduler", cluster.address]) == 1


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "sampleblk_lab-1.whl").write_text("no archive")
    for path in (tmp_path / "sampleblk_lab-1.whl", _wheel(tmp_path, "1", "").rename(tmp_path / "other-1.whl")):
        with pytest.raises(lab.InputError, match="is not a wheel of sampleblk-lab"):
            lab.sweeps.install("tcp://127.0.0.1:9", path)
