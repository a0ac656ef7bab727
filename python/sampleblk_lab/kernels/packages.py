# SPDX-License-Identifier: MIT
"""A kernel in Debian packages of the user's own, as ``make bindeb-pkg`` and distributions write them.

Unpacked once for each content, into the cache. The package of the image is named; those of its modules and headers are
found beside it, or named too.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sampleblk_lab.errors import FormatError, InputError, UnsupportedError
from sampleblk_lab.kernels import debian, image, toolchain
from sampleblk_lab.kernels.store import headers_are_whole
from sampleblk_lab.paths import (
    built_directory,
    cache_root,
    find_program,
    fingerprint,
    in_home,
    keep_newest,
    locked,
    write_atomically,
)
from sampleblk_lab.progress import note, step

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SUFFIX = ".deb"

# Between the paths of several packages.
SEPARATOR = ":"

# Unpacked kernels that were not used for longest go when there are more. One takes up to 500 MB.
_KEPT = 8

# What unpacked packages are described as, in a file beside them that is written last.
_ABOUT, _FORMAT = "packages.json", 1

# linux-image-RELEASE, and Ubuntu's linux-image-unsigned-RELEASE; not the -dbg of either.
_IMAGE = re.compile(r"linux-image-(?:unsigned-)?(\d.*?)(?:-unsigned)?(?<!-dbg)")

# The packages that the one of an image is split into: Debian's since 7.0, and Ubuntu's.
_PARTS = ("base", "binary", "modules", "modules-extra")


class _Package(NamedTuple):
    """What a package's control file says of it."""

    path: Path
    name: str
    version: str
    depends: str


@dataclass(frozen=True)
class Unpacked:
    """A kernel out of packages: what a Kernel is made of.

    Attributes:
        release: What ``uname -r`` says in it.
        image: Its vmlinux.
        modules: Its ``lib/modules/RELEASE``.
        build: Its headers; None: they are not whole.
        lacking: The packages that the headers need and that are missing, with theirs if that is so.
        version: The version of the image's package.
    """

    release: str
    image: Path
    modules: Path
    build: Path | None
    lacking: tuple[str, ...]
    version: str


def is_meant(spec: str) -> bool:
    """Whether a kernel's name is one of packages: each of its paths ends so."""
    return all(part.endswith(SUFFIX) for part in spec.split(SEPARATOR))


def unpack(spec: str) -> Unpacked:
    """The kernel in packages.

    Args:
        spec: The path of the package with the image, or it and others with colons between them.

    Raises:
        InputError: A path is not a package, or none, or several, have an image.
        UnsupportedError: dpkg is not installed, or the modules are in a package that is missing.
        FormatError: What is said to be a kernel image is none.
        sampleblk_lab.kernels.debian.PackageError: A package is damaged.
    """
    named = [in_home(part).absolute() for part in spec.split(SEPARATOR)]
    for path in named:
        if not path.is_file():
            raise InputError(f"kernel package '{path}' does not exist", expected="a linux-image-….deb")
    if find_program("dpkg-deb") is None or find_program("dpkg") is None:
        raise UnsupportedError(f"kernel {named[0]}", "dpkg is not installed", "install it, or give an unpacked kernel")
    packages = [_read(path) for path in named]
    images = [package for package in packages if _IMAGE.fullmatch(package.name)]
    if len(images) != 1:
        has = ", ".join(package.name for package in packages)
        raise InputError(
            f"of the packages {has} {len(images)} have a kernel's image", expected="one linux-image-RELEASE"
        )
    [picture] = images
    packages += _beside(picture, packages)
    headers = f"linux-headers-{_release_of(picture)}"
    lacking = sorted({headers, *_needs(packages, headers)} - {package.name for package in packages})
    target = cache_root() / "packages" / _content_key(package.path for package in packages)
    with locked(target):
        found = _load(target)
        if found is None:
            with step(f"unpacking {picture.name}"), built_directory(target) as scratch:
                _unpack(picture, packages, scratch, target, lacking)
            found = _load(target)
            _forget_oldest(target.parent)
    if found is None:
        raise FormatError(str(picture.path), 0, "a kernel that can be read back after it was unpacked")
    os.utime(target)
    if found.build is None:
        note(
            f"the driver is not built for {found.release}: it needs {', '.join(found.lacking)}, which is neither "
            f"beside {picture.path.name} nor named after a colon"
        )
    return found


def _read(path: Path) -> _Package:
    fields = debian.control(path)
    return _Package(path, fields.get("Package", ""), fields.get("Version", ""), fields.get("Depends", ""))


def _release_of(picture: _Package) -> str:
    matched = _IMAGE.fullmatch(picture.name)
    assert matched is not None
    return matched[1]


def _beside(picture: _Package, given: Sequence[_Package]) -> list[_Package]:
    """The packages that belong to an image's, in its folder: of its own version, but for the tools of kbuild."""
    release = _release_of(picture)
    wanted = {f"linux-{part}-{release}" for part in (*_PARTS, "headers")}
    wanted -= {package.name for package in given}
    # By the file's name first: reading what a package says of itself starts a process.
    candidates = [
        _read(path)
        for path in sorted(picture.path.parent.glob(f"linux-*{SUFFIX}"))
        if path.name.startswith(("linux-headers-", "linux-kbuild-", *(f"linux-{part}-" for part in _PARTS)))
    ]
    found = [each for each in candidates if each.name in wanted and each.version == picture.version]
    needs = _needs([*given, *found], f"linux-headers-{release}") - {package.name for package in given}
    below: dict[str, _Package] = {}
    for each in candidates:
        if each.name in needs and (each.name not in below or each.version == picture.version):
            below[each.name] = each
    return [*found, *below.values()]


def _needs(packages: Sequence[_Package], headers: str) -> set[str]:
    """The packages that a headers package depends on for building modules: what it shares with others, and kbuild."""
    depends = ", ".join(package.depends for package in packages if package.name == headers)
    return set(re.findall(r"linux-(?:headers|kbuild)-[^\s,|(:]+", depends))


def _content_key(paths: Iterable[Path]) -> str:
    """Tells packages by what is in them. That of files that have not changed is remembered."""
    ordered = sorted(paths)
    seen = hashlib.sha256("\n".join(map(fingerprint, ordered)).encode()).hexdigest()[:24]
    remembered = cache_root() / "packages" / "seen" / seen
    if remembered.is_file() and re.fullmatch(r"[0-9a-f]{24}", key := remembered.read_text(errors="replace")):
        return key
    digests = []
    for path in ordered:
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    key = hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()[:24]
    write_atomically(remembered, key.encode())
    return key


def _unpack(
    picture: _Package, packages: Sequence[_Package], scratch: Path, final: Path, lacking: Sequence[str]
) -> None:
    release = _release_of(picture)
    for package in packages:
        debian.extract(package.path, scratch)
    if (scratch / "usr/lib/modules").is_dir() and not (scratch / "lib").exists():
        (scratch / "lib").symlink_to("usr/lib")
    modules = scratch / "lib/modules" / release
    # modules_install writes this one; a headers package alone has only a link there.
    if not (modules / "modules.order").is_file():
        wanted = f"linux-modules-{release}"
        raise UnsupportedError(
            f"kernel {picture.path}",
            f"its modules are not in it, and {wanted} of version {picture.version} is not beside it",
            f"put it there, or give both: {picture.path.name}{SEPARATOR}{wanted}_….deb",
        )
    packed = next((path for path in (modules / "vmlinuz", scratch / f"boot/vmlinuz-{release}") if path.is_file()), None)
    if packed is None:
        raise InputError(f"kernel package '{picture.path}' has no boot/vmlinuz-{release}", expected="a kernel's image")
    image.extract_vmlinux(packed, scratch / "vmlinux")
    toolchain.run_depmod(scratch, release)
    if not lacking:
        toolchain.relocate_headers(scratch, release, final)
    about = {
        "format": _FORMAT,
        "release": release,
        "version": picture.version,
        "lacking": list(lacking),
        "image_bytes": (scratch / "vmlinux").stat().st_size,
    }
    (scratch / _ABOUT).write_text(json.dumps(about))


def _load(folder: Path) -> Unpacked | None:
    """What was unpacked there; None when it is not whole."""
    try:
        about = json.loads((folder / _ABOUT).read_text())
        release, version, lacking = str(about["release"]), str(about["version"]), tuple(map(str, about["lacking"]))
        if about["format"] != _FORMAT or (folder / "vmlinux").stat().st_size != about["image_bytes"]:
            return None
        modules = folder / "lib/modules" / release
        build = None if lacking else folder / "usr/src" / f"linux-headers-{release}"
        if not (modules / "modules.dep").exists() or (build is not None and not headers_are_whole(build)):
            return None
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return Unpacked(release, folder / "vmlinux", modules, build, lacking, version)


def _forget_oldest(folder: Path) -> None:
    keep_newest((path.parent for path in folder.glob(f"*/{_ABOUT}")), _KEPT)
