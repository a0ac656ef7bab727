# SPDX-License-Identifier: MIT
"""Kernels in Debian packages of the user's own. These are made of what a kernel of the cache was unpacked from."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sampleblk_lab import kernels
from sampleblk_lab.errors import InputError, UnsupportedError
from sampleblk_lab.kernels import Kernel, debian, driver, packages, store
from sampleblk_lab.vm import VM
from sampleblk_lab.vm.contents import initramfs

VERSION = "6.1.999-1"


class Maker:
    """Makes packages of a kernel's files."""

    def __init__(self, scratch: Path, folder: Path) -> None:
        self.kernel = kernels.resolve("6.1")
        self.release = self.kernel.release
        self.root = self.kernel.image.parent
        self.folder = folder
        self._scratch = scratch

    def __call__(self, name: str, files: dict[str, str], *, version: str = VERSION, depends: str = "") -> Path:
        """Of files of the kernel, by their place in the package."""
        root = self._scratch / f"{name}-{version}"
        for place, source in files.items():
            (root / place).parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-a", self.root / source, root / place], check=True)
        makefile = root / f"usr/src/linux-headers-{self.release}/Makefile"
        if makefile.is_file():
            # As it is in Debian's: the cache has pointed it to itself.
            text = makefile.read_text()
            assert str(self.root) in text
            makefile.unlink()
            makefile.write_text(text.replace(str(self.root), ""))
        control = root / "DEBIAN/control"
        control.parent.mkdir(parents=True)
        control.write_text(
            f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: A Tester <tester@example.org>\n"
            + (f"Depends: {depends}\n" if depends else "")
            + "Description: a kernel\n"
        )
        self.folder.mkdir(exist_ok=True)
        path = self.folder / f"{name}_{version}_amd64.deb"
        subprocess.run(["dpkg-deb", "-Znone", "--root-owner-group", "-b", root, path], check=True, capture_output=True)
        shutil.rmtree(root)
        return path

    def modules(self) -> dict[str, str]:
        """Those that a VM needs, and the lists that modules_install writes."""
        assert self.kernel.modules is not None
        files = [path.relative_to(self.root) for path in initramfs.module_files(self.kernel)]
        below = self.kernel.modules.relative_to(self.root)
        files += [below / name for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo")]
        return {str(path): str(path) for path in files}

    def image(self, **keywords: str) -> Path:
        boot = {f"boot/{name}-{self.release}": f"boot/{name}-{self.release}" for name in ("vmlinuz", "config")}
        return self(f"linux-image-{self.release}", {**boot, **self.modules()}, **keywords)

    def headers(self) -> list[Path]:
        """Three packages, 13,000 files: made once, and copied."""
        made = self._scratch.parent.parent / "headers-of-a-kernel"
        if not made.exists():
            for_all = copy.copy(self)
            for_all.folder = made.with_name(f"{made.name}.part")
            for_all._make_headers()
            for_all.folder.rename(made)
        self.folder.mkdir(exist_ok=True)
        return [Path(shutil.copy(path, self.folder)) for path in sorted(made.iterdir())]

    def _make_headers(self) -> None:
        common = f"linux-headers-{self.release.removesuffix('amd64')}common"
        own = f"linux-headers-{self.release}"
        depends = f"{common} (= {VERSION}), linux-kbuild-6.1 (>= 6.1), linux-compiler-gcc-12-x86"
        self(own, {f"usr/src/{own}": f"usr/src/{own}"}, depends=depends)
        self(common, {f"usr/src/{common}": f"usr/src/{common}"})
        self("linux-kbuild-6.1", {"usr/lib/linux-kbuild-6.1": "usr/lib/linux-kbuild-6.1"}, version="6.1.1000-1")


@pytest.fixture
def make(tmp_path: Path) -> Maker:
    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is not installed")
    return Maker(tmp_path / "scratch", tmp_path / "debs")


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of unpacked packages, in a cache that has nothing else."""
    cache = tmp_path / "cache"
    monkeypatch.setattr(packages, "cache_root", lambda: cache)
    return cache / "packages"


def _unpacked(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("*/packages.json"))


def test_a_vm_runs_the_kernel_of_a_package_with_the_driver(make: Maker, own_builds: Path) -> None:
    picture = make.image()
    make.headers()
    kernel = kernels.resolve(str(picture))
    assert (kernel.release, kernel.version) == (make.release, VERSION)
    assert kernel.build is not None
    assert f"include {own_builds}/packages/" in (kernel.build / "Makefile").read_text()
    with VM(kernel=str(picture), warm=False) as vm:
        assert vm.run(["uname", "-r"]).stdout.decode().strip() == make.release
        assert vm.run(["modprobe", "sampleblk"]).returncode == 0


def test_packages_are_unpacked_once_for_each_content(
    make: Maker, own_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    picture = make.image()
    first = kernels.resolve(str(picture))
    assert first.modules is not None
    assert [path.name for path in initramfs.module_files(first)]
    assert first.image.read_bytes() == make.kernel.image.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(debian, "extract", lambda *_: pytest.fail("unpacked again"))
        assert kernels.resolve(str(picture)) == first
        copy = tmp_path / "elsewhere" / picture.name
        copy.parent.mkdir()
        shutil.copy(picture, copy)
        assert kernels.resolve(str(copy)) == first
    assert len(_unpacked(own_cache)) == 1
    # What was damaged since is unpacked again, and another content beside it.
    os.truncate(first.image, 1000)
    assert kernels.resolve(str(picture)) == first
    assert first.image.read_bytes() == make.kernel.image.read_bytes()
    shutil.rmtree(first.modules)
    assert kernels.resolve(str(picture)) == first
    assert [path.name for path in initramfs.module_files(first)]
    picture.write_bytes(make.image(version="6.1.999-2").read_bytes())
    assert kernels.resolve(str(picture)).version == "6.1.999-2"
    assert len(_unpacked(own_cache)) == 2


@pytest.mark.usefixtures("own_cache")
def test_headers_are_found_or_asked_for(make: Maker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = make.image()
    without = kernels.resolve(str(picture))
    assert without.build is None
    assert driver.module_tree(without) == without.modules
    assert (
        f"the driver is not built for {make.release}: it needs linux-headers-{make.release}" in capsys.readouterr().err
    )
    # Of another version, they are not its own.
    own, common, kbuild = make.headers()  # as their names sort
    (make.folder / "other.deb").write_bytes(b"")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in (common, kbuild):
        path.rename(elsewhere / path.name)
    assert kernels.resolve(str(picture)).build is None
    said = capsys.readouterr().err
    assert f"it needs {common.name.partition('_')[0]}, linux-kbuild-6.1" in said
    named = packages.SEPARATOR.join(map(str, [picture, elsewhere / common.name, elsewhere / kbuild.name]))
    kernel = kernels.resolve(named)
    assert kernel.build is not None
    assert capsys.readouterr().err.count("the driver is not built") == 0
    # make follows what the tree includes and links to, and finds what it finds in the cache.
    assert make.kernel.build is not None
    told = [
        subprocess.run(["make", "-s", "-C", folder, "kernelrelease"], capture_output=True, text=True, check=True).stdout
        for folder in (kernel.build, make.kernel.build)
    ]
    assert told[0] == told[1] != ""
    assert own.is_file()
    shutil.rmtree(kernel.build)
    assert kernels.resolve(named) == kernel
    assert (kernel.build / "Makefile").is_file()


@pytest.mark.usefixtures("own_cache")
def test_headers_of_another_version_are_not_taken(make: Maker) -> None:
    picture = make.image(version="6.1.998-1")
    make.headers()
    assert kernels.resolve(str(picture)).build is None


@pytest.mark.usefixtures("own_cache")
def test_modules_may_be_in_a_package_of_their_own(make: Maker, tmp_path: Path) -> None:
    picture = make(
        f"linux-image-unsigned-{make.release}", {f"boot/vmlinuz-{make.release}": f"boot/vmlinuz-{make.release}"}
    )
    with pytest.raises(UnsupportedError, match=f"linux-modules-{make.release} of version {VERSION} is not beside it"):
        kernels.resolve(str(picture))
    modules = make(f"linux-modules-{make.release}", make.modules())
    beside = kernels.resolve(str(picture))
    assert beside.release == make.release
    assert initramfs.module_files(beside)
    moved = modules.rename(tmp_path / modules.name)
    assert kernels.resolve(f"{picture}{packages.SEPARATOR}{moved}") == beside


@pytest.mark.usefixtures("own_cache")
def test_what_is_no_kernel_s_package_is_said(make: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"not-there\.deb' does not exist"):
        kernels.resolve("not-there.deb")
    other = make("hello", {})
    with pytest.raises(InputError, match="of the packages hello 0 have a kernel's image"):
        kernels.resolve(str(other))
    debug = make(f"linux-image-{make.release}-dbg", {})
    with pytest.raises(InputError, match="0 have a kernel's image"):
        kernels.resolve(str(debug))
    broken = tmp_path / "linux-image-1.deb"
    broken.write_bytes(b"!<arch>\n and no more")
    with pytest.raises(debian.PackageError, match=r"linux-image-1\.deb: exit status"):
        kernels.resolve(str(broken))
    monkeypatch.setattr(packages, "find_program", lambda _name: None)
    with pytest.raises(UnsupportedError, match="dpkg is not installed"):
        kernels.resolve(str(other))


def test_a_path_without_a_slash_is_a_package_too(make: Maker, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = make.image()
    monkeypatch.chdir(picture.parent)
    kernel: Kernel = kernels.resolve(picture.name)
    assert kernel.image.is_relative_to(own_cache)
    assert not store.is_cached(kernel)  # it is the user's to replace, and is not fetched


def test_a_package_is_read_whatever_its_maintainer_s_letters_are(tmp_path: Path) -> None:
    control = tmp_path / "it/DEBIAN/control"
    control.parent.mkdir(parents=True)
    control.write_bytes(
        b"Package: linux-image-6.1.5\nVersion: 1\nArchitecture: all\n"
        b"Maintainer: J\xfcrgen <j@example.org>\nDescription: x\n"
    )
    package = tmp_path / "it.deb"
    subprocess.run(["dpkg-deb", "-Znone", "-b", tmp_path / "it", package], check=True, capture_output=True)
    assert debian.control(package)["Package"] == "linux-image-6.1.5"


def test_a_package_is_unpacked_into_its_folder_only(tmp_path: Path) -> None:
    """What the next package, depmod and we ourselves write there would go through its links."""
    outside, into, root = tmp_path / "outside", tmp_path / "into", tmp_path / "it"
    outside.mkdir()
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN/control").write_text(
        "Package: linux-image-6.1.5\nVersion: 1\nArchitecture: all\nMaintainer: J <j@example.org>\nDescription: x\n"
    )
    package = tmp_path / "it.deb"

    def extract(name: str, target: str) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target)
        subprocess.run(["dpkg-deb", "-Znone", "-b", root, package], check=True, capture_output=True)
        (root / name).unlink()
        debian.extract(package, into)

    extract("lib/modules/6.1.5/build", "/usr/src/linux-headers-6.1.5")
    assert os.path.realpath(into / "lib/modules/6.1.5/build") == str(into / "usr/src/linux-headers-6.1.5")
    extract("usr/lib", str(outside))
    (into / "usr").mkdir(exist_ok=True)
    assert not (into / "usr/lib").exists()
    with pytest.raises(debian.PackageError, match=r"its link packages\.json -> \.\./outside/it leads out"):
        extract("packages.json", "../outside/it")
