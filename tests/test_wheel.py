# SPDX-License-Identifier: MIT
"""The package as a user gets it: a wheel, installed into an environment that has nothing else."""

from __future__ import annotations

import base64
import email
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import sampleblk_lab as lab

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT / "packaging"))
import wheel as wheel_builder  # noqa: E402

RECORDING = CHECKOUT / "tests/data/trace/6.1-io.dat"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `make wheel` fills."""
    pytest.importorskip("auditwheel", reason="make wheel")
    target = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, CHECKOUT / "packaging/wheel.py", target], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    [path] = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` of a fresh environment with the wheel in it."""
    home = tmp_path_factory.mktemp("venv")
    venv.create(home, with_pip=True)
    subprocess.run([home / "bin/pip", "install", "-q", "--only-binary", ":all:", str(wheel)], check=True)
    return home / "bin"


def run(command: list[str | Path], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_what_a_wheel_lacks_is_named() -> None:
    sources = wheel_builder.tracked()
    wanted = wheel_builder.in_wheel(sources)
    for name in ("module/Makefile", "module/core/journal.c", "module/probes", "module/dkms"):
        assert any(other.startswith(f"sampleblk_lab/_{name}") for other in wanted), name
    for name in ("py.typed", "report/page.css", "_core.pyi", "demo/fs_seq_write_sync_001", "vm/machine.py"):
        assert f"sampleblk_lab/{name}" in wanted
    assert not any("/tests/" in name or name.endswith(".gitignore") for name in wanted)
    complete = [*wanted, *wheel_builder.BUILT, "sampleblk_lab/_core.cpython-311-x86_64-linux-gnu.so"]
    assert wheel_builder.missing_from_wheel(complete, sources) == []
    for gone in (complete[0], complete[-2]):
        assert wheel_builder.missing_from_wheel([name for name in complete if name != gone], sources) == [gone]
    assert wheel_builder.missing_from_wheel(complete[:-1], sources) == ["sampleblk_lab/_core"]


def test_the_install_rules_cover_the_guests_programs_and_the_driver() -> None:
    """What the checkout's own installation, made by the same rules, put beside the extension."""
    from sampleblk_lab._native import core

    home = Path(core.__file__).parent
    for name in wheel_builder.PROGRAMS:
        assert os.access(home.parent / name, os.X_OK), name
    for name in wheel_builder.BUILT:
        assert (home.parent / name).exists(), name
    assert (home / "_module/Makefile").exists()
    assert not (home / "_module/tests").exists()
    # What tells which packages a suite needs.
    listed = CHECKOUT / "packaging/debian-suites.txt"
    assert (home / "_packaging/debian-suites.txt").read_bytes() == listed.read_bytes()


@pytest.mark.parametrize(
    "changed", ["packaging/debian-suites.txt", "module/core/journal.c", "cpp/bindings/CMakeLists.txt"]
)
def test_what_is_installed_beside_the_core_is_installed_anew_when_it_changes(changed: str) -> None:
    done = subprocess.run(
        ["make", "--dry-run", "--what-if", changed, ".stamps/core"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "building the C++ core" in done.stdout


def test_the_version_is_the_same_everywhere() -> None:
    assert wheel_builder.version() == lab.__version__


def test_a_release_is_what_its_tag_says() -> None:
    problem = wheel_builder.tag_problem
    assert problem("1.2.0", [], changed=True) is None
    assert problem("1.2.0", ["verified", "nightly"], changed=True) is None
    assert problem("1.2.0", ["v1.2.0"], changed=False) is None
    assert (
        problem("1.2.0", ["v1.3.0"], changed=False)
        == "the commit is tagged v1.3.0, but pyproject.toml's version is 1.2.0"
    )
    assert problem("1.2.0", ["v1.2.0"], changed=True) == "the working tree differs from v1.2.0"


def test_a_bundled_library_is_traced_to_where_it_came_from() -> None:
    libraries = {"libdw-0.188.so": Path("/a"), "libzstd.so.1.5.4": Path("/b"), "libdw.so.1": Path("/c")}
    assert wheel_builder.origin("libzstd-76b78bac.so.1.5.4", libraries) == Path("/b")
    assert wheel_builder.origin("libdw-0-f770356f.188.so", libraries) == Path("/a")
    assert wheel_builder.origin("libzstd.so.1.5.4", libraries) is None


def test_added_licences_are_in_the_files_the_metadata_and_the_record(tmp_path: Path) -> None:
    path = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        script = zipfile.ZipInfo("x/run")
        script.external_attr = 0o100755 << 16
        archive.writestr(script, "#!/bin/sh\n")
        archive.writestr("x-1.dist-info/METADATA", "Metadata-Version: 2.4\nName: x\nVersion: 1\n\nText\n\nmore\n")
        archive.writestr("x-1.dist-info/RECORD", "x/run,,\nx-1.dist-info/METADATA,,\nx-1.dist-info/RECORD,,\n")
    wheel_builder.add_files(path, {"bundled/zlib1g.txt": "Zlib"})
    with zipfile.ZipFile(path) as archive:
        assert archive.read("x-1.dist-info/licenses/bundled/zlib1g.txt") == b"Zlib"
        assert archive.getinfo("x/run").external_attr >> 16 == 0o100755
        about = email.message_from_bytes(archive.read("x-1.dist-info/METADATA"))
        assert about.get_all("License-File") == ["bundled/zlib1g.txt"]
        assert about.get_payload() == "Text\n\nmore\n"
        _check_record(archive)


def _check_record(archive: zipfile.ZipFile) -> None:
    """Every file once, with its size and digest."""
    [name] = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
    rows = [line.rsplit(",", 2) for line in archive.read(name).decode().splitlines()]
    assert sorted(row[0] for row in rows) == sorted(archive.namelist())
    for path, digest, size in rows:
        if path == name:
            continue
        data = archive.read(path)
        assert int(size) == len(data)
        made = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        assert digest == f"sha256={made}", path


def test_what_is_built_is_what_git_tracks_as_it_is(tmp_path: Path) -> None:
    root, target = tmp_path / "root", tmp_path / "target"
    root.mkdir()
    for name in ("same", "changed", "build/tracked", "bin/run"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(name)
    (root / "bin/run").chmod(0o755)
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", "-C", root, *command], check=True)
    os.utime(root / "same")  # what git's index says of it is old, as in a copied checkout
    wheel_builder.export(target, root)
    (target / "build/made").write_text("kept: it was built")
    (target / "gone").write_text("no longer tracked")
    before = (target / "same").stat().st_mtime_ns
    (root / "changed").write_text("now")
    (root / "untracked").write_text("x")
    wheel_builder.export(target, root)
    found = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    assert found == {"same", "changed", "build/tracked", "build/made", "bin/run"}
    assert (target / "changed").read_text() == "now"
    assert (target / "same").stat().st_mtime_ns == before, "else all is compiled again"
    assert os.access(target / "bin/run", os.X_OK)
    assert not os.access(target / "same", os.X_OK)


def test_the_sdist_is_what_git_tracks(tmp_path: Path) -> None:
    source = tmp_path / "source"
    wheel_builder.export(source)
    code = f"import scikit_build_core.build as backend; print(backend.build_sdist({str(tmp_path)!r}))"
    run([sys.executable, "-c", code], source)
    [path] = tmp_path.glob("*.tar.gz")
    assert path.name == f"sampleblk_lab-{lab.__version__}.tar.gz"
    with tarfile.open(path) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if not member.isdir()}
    tracked = {name for name in wheel_builder.tracked() if not name.startswith(wheel_builder.NOT_IN_SDIST)}
    assert names == {*tracked, "PKG-INFO"}


@pytest.mark.full
def test_the_wheel_is_complete_and_says_what_it_bundles(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert wheel_builder.missing_from_wheel(names, wheel_builder.tracked()) == []
        _check_record(archive)
        [metadata] = [name for name in names if name.endswith(".dist-info/METADATA")]
        about = email.message_from_bytes(archive.read(metadata))
        home = metadata.removesuffix("METADATA")
        listed = archive.read(f"{home}licenses/bundled/README.txt").decode()
        for name in about.get_all("License-File"):
            assert f"{home}licenses/{name}" in names
    bundled = wheel_builder.bundled_in(wheel)
    assert "manylinux" in wheel.name
    assert about["Version"] == lab.__version__
    for library in ("libtracefs", "libtraceevent", "libdw", "libzstd"):
        assert any(name.startswith(f"{library}-") for name in bundled), bundled
    for name in bundled:
        [licence] = re.findall(rf"^{re.escape(name)}: (\S+\.txt);", listed, re.MULTILINE)
        assert f"bundled/{licence}" in about.get_all("License-File")
    assert {"bundled/LGPL-2.1.txt", "LICENSES/MIT.txt", "LICENSES/GPL-2.0-only.txt"} <= set(
        about.get_all("License-File")
    )


# In a mount namespace of its own: the system's copies of what is bundled, the compilers and the headers are gone.
_HIDE = """
set -e
mount --make-rprivate /
while [ "$1" != -- ]; do
	if [ -d "$1" ]; then mount -t tmpfs none "$1"; else mount --bind /dev/null "$1"; fi
	shift
done
shift
exec "$@"
"""

_SMOKE = """
import json, pathlib, sys
import sampleblk_lab as lab
from sampleblk_lab._native import core
run = lab.open_run(sys.argv[1])
job = lab.Job(rw="write", bs="4k", size="64k", filename=sys.argv[2])
maps = pathlib.Path("/proc/self/maps").read_text()
print(json.dumps({
    "events": int(run.counts()["count"].values.sum()),
    "loaded": sorted({line.split()[-1] for line in maps.splitlines() if ".so" in line}),
    "ios": int(job.run(progress=False).summary()["ios"].values.sum()),
}))
"""


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="hiding the system's files takes root")
def test_it_needs_no_compiler_and_none_of_the_systems_copies(wheel: Path, installed: Path, tmp_path: Path) -> None:
    """The smoke test, where neither a compiler, nor a header, nor a library that the wheel bundles can be opened."""
    from sampleblk_lab._native import core

    system = wheel_builder._system_libraries([Path(core.__file__)])
    names = wheel_builder.bundled_in(wheel)
    origins = [path for name in names if (path := wheel_builder.origin(name, system)) is not None]
    assert len(origins) == len(names) >= 5
    compilers = [found for name in ("gcc", "g++", "cc", "c++", "ld") if (found := shutil.which(name))]
    hidden = [*map(str, origins), *{str(Path(path).resolve()) for path in compilers}, "/usr/include"]
    enter = ["unshare", "--mount", "sh", "-c", _HIDE, "sh", *hidden, "--"]
    # Our own build, which loads the system's, shows that they are gone.
    ours = subprocess.run(
        [*enter, sys.executable, "-c", "from sampleblk_lab._native import core"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ours.returncode != 0
    assert "ImportError" in ours.stderr

    told = json.loads(run([*enter, installed / "python", "-c", _SMOKE, RECORDING, tmp_path / "file"], tmp_path))
    assert told["events"] == lab.open_run(RECORDING).counts()["count"].values.sum()
    assert told["ios"] == 16
    loaded = {Path(path).name for path in told["loaded"]}
    assert {name for name in names if name.startswith("libtracefs")} <= loaded
    assert not {str(path) for path in origins} & set(told["loaded"])
    said = run([*enter, installed / "sampleblk-lab", "--version"], tmp_path)
    assert said == f"sampleblk-lab {lab.__version__}\n"
    # Here what the interpreter's own modules and the tools that doctor starts load, is there.
    ours_only = [str(path) for path in origins if re.match(r"lib(tracefs|traceevent|dw|elf|fmt)", path.name)]
    assert len(ours_only) == 5
    enter = ["unshare", "--mount", "sh", "-c", _HIDE, "sh", *ours_only, "/usr/include", "--"]
    done = subprocess.run(
        [*enter, installed / "sampleblk-lab", "doctor", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    checks = json.loads(done.stdout)["checks"]
    [core_check] = [check for check in checks if check["found"].startswith("loaded, with ")]
    assert core_check["state"] == "ok"


@pytest.mark.full
def test_it_runs_the_driver_in_a_vm(installed: Path, tmp_path: Path) -> None:
    """The module that the guest loads is built from the wheel's own copy of the source."""
    where = run(
        [installed / "python", "-c", "from sampleblk_lab.paths import module_source as m; print(m())"], tmp_path
    )
    assert where.strip().endswith("site-packages/sampleblk_lab/_module")
    code = "import sampleblk_lab as lab; d = lab.Device('32M'); print(open(d.path, 'rb').read(4) == bytes(4))"
    setup = "import subprocess; subprocess.run(['modprobe', 'sampleblk'], check=True); "
    assert run([installed / "sampleblk-python", "-c", setup + code], tmp_path) == "True\n"


@pytest.mark.full
def test_doctor_is_ready_in_it(installed: Path, tmp_path: Path) -> None:
    """Without the extras: what lacks is named with how to get it, and nothing that everything needs is missing."""
    text = run([installed / "sampleblk-lab", "doctor"], tmp_path)
    assert text.splitlines()[-1] == "ready: sampleblk-lab demo"
    assert "pip install 'sampleblk-lab[plot]'" in text
    assert "site-packages/sampleblk_lab/_module" in text


@pytest.mark.full
def test_plots_say_what_to_install(installed: Path, tmp_path: Path) -> None:
    code = (
        "import sampleblk_lab as lab\nfrom sampleblk_lab import plot\n"
        "made = plot.comparison(lab.compare([1.0] * 6, [2.0] * 6))\n"
        "try: made.figure()\nexcept lab.UnsupportedError as error: print(error)\n"
    )
    assert "pip install 'sampleblk-lab[plot]'" in run([installed / "python", "-c", code], tmp_path)
