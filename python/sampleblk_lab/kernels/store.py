# SPDX-License-Identifier: MIT
"""The kernels of the cache: what is there, what a name means, and how a missing one is fetched."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sampleblk_lab.errors import InputError, UnsupportedError
from sampleblk_lab.kernels import debian, image, toolchain
from sampleblk_lab.paths import built_directory, cache_root, locked
from sampleblk_lab.progress import step

# Booted when nothing else is asked for: the kernel of Debian 12.
DEFAULT = "6.1"

# Debian's suites that carry kernels, oldest first.
SUITES = (
    "bullseye",
    "bullseye-security",
    "bookworm",
    "bookworm-security",
    "bookworm-backports",
    "trixie",
    "trixie-security",
    "trixie-backports",
)

# Where a series is known to be, so that nobody downloads the lists of every suite to find it.
_SERIES = {
    "5.10": ("bullseye-security", "bullseye"),
    "6.1": ("bookworm-security", "bookworm"),
    "6.12": ("bookworm-security", "trixie-security", "trixie", "bookworm-backports"),
    "7.2": ("trixie-backports",),
}

# linux-image-6.1.0-56-amd64, linux-image-6.12.117+deb12-amd64; not -rt, -cloud, -dbg, -unsigned or a metapackage.
_IMAGE_PACKAGE = r"linux-image-\d+\.\d+\.\d+[^-]*(?:-\d+)?-amd64"


# The packages that the one of an image has been split into since 7.0.
_PARTS = ("base", "binary", "modules")


@dataclass(frozen=True)
class Kernel:
    """A kernel that can be booted.

    Attributes:
        release: What ``uname -r`` says in it.
        image: The vmlinux or bzImage to boot.
        modules: Its ``lib/modules/RELEASE``; None when everything it needs is built in.
        build: The folder that ``make -C`` takes to build modules for it; None when there are no headers.
        suite: The Debian suite it came from; empty for a kernel of the user's own.
        version: Its Debian package version; empty likewise.
        tools: Folder of programs that a build for it must find before the system's; None when those are good.
    """

    release: str
    image: Path
    modules: Path | None
    build: Path | None
    suite: str = ""
    version: str = ""
    tools: Path | None = None

    @property
    def series(self) -> str:
        """The first two numbers of the release, such as ``"6.1"``."""
        return ".".join(self.release.split(".")[:2])

    @property
    def search_path(self) -> str:
        """The PATH that a build for it needs: `tools` before all else."""
        search = os.environ.get("PATH", os.defpath)
        return f"{self.tools}:{search}" if self.tools else search


def _order(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release))


def _root() -> Path:
    return cache_root() / "kernels"


def _load(folder: Path) -> Kernel:
    about = json.loads((folder / "kernel.json").read_text())
    release = about["release"]
    tools = about.get("tools")
    return Kernel(
        release=release,
        image=folder / "vmlinux",
        modules=folder / "lib/modules" / release,
        build=folder / "usr/src" / f"linux-headers-{release}",
        suite=about["suite"],
        version=about["version"],
        tools=cache_root() / tools if tools else None,
    )


def installed() -> list[Kernel]:
    """The kernels of the cache, oldest release first."""
    found = [_load(path.parent) for path in _root().glob("*/kernel.json")]
    return sorted(found, key=lambda kernel: _order(kernel.release))


def _matches(spec: str, release: str) -> bool:
    return release == spec or re.match(rf"{re.escape(spec)}(?![0-9])", release) is not None


def _from_path(path: Path) -> Kernel:
    """A kernel of the user's own: an image file, a build tree, or a folder with ``boot`` and ``lib/modules``."""
    if path.is_dir():
        built = path / "arch/x86/boot/bzImage"
        if built.exists():
            release = (path / "include/config/kernel.release").read_text().strip()
            modules = path / "lib/modules" / release
            return Kernel(release, built, modules if modules.is_dir() else None, path)
        images = sorted(path.glob("boot/vmlinuz-*"))
        if len(images) != 1:
            raise InputError(
                f"kernel folder '{path}' has {len(images)} boot/vmlinuz-* files",
                expected="a build tree with arch/x86/boot/bzImage, or a folder with one boot/vmlinuz-RELEASE",
            )
        release = images[0].name.removeprefix("vmlinuz-")
        modules, headers = path / "lib/modules" / release, path / "usr/src" / f"linux-headers-{release}"
        return Kernel(release, images[0], modules if modules.is_dir() else None, headers if headers.is_dir() else None)
    release = image.release_of(path)
    modules = Path("/lib/modules") / release
    return Kernel(
        release,
        path,
        modules if modules.is_dir() else None,
        modules / "build" if (modules / "build").exists() else None,
    )


def resolve(spec: str | None = None, *, download: bool = True) -> Kernel:
    """The kernel that a name means.

    Args:
        spec: A release (``6.1.0-56-amd64``) or its beginning (``6.1``: the newest of the cache), a path (an image, a
            build tree, a folder with ``boot`` and ``lib/modules``) or a Debian suite (``trixie-backports``). None:
            ``$SAMPLEBLK_KERNEL``, else :data:`DEFAULT`.
        download: Fetch what the cache lacks.

    Raises:
        InputError: The name means nothing.
        UnsupportedError: The cache lacks it and `download` is off, or there is no Debian mirror to ask.
        sampleblk_lab.kernels.debian.PackageError: apt could not get it.
    """
    spec = spec or os.environ.get("SAMPLEBLK_KERNEL") or DEFAULT
    if "/" in spec:
        path = Path(spec).expanduser().absolute()
        if not path.exists():
            raise InputError(f"kernel '{spec}' does not exist", expected="the path of an image or of a kernel folder")
        return _from_path(path)
    if spec in SUITES:
        matching = [kernel for kernel in installed() if kernel.suite == spec]
    else:
        matching = [kernel for kernel in installed() if _matches(spec, kernel.release)]
    if matching:
        return matching[-1]
    if not download:
        raise UnsupportedError(f"kernel {spec}", "not in the cache", f"sampleblk-lab kernel fetch {spec}")
    return fetch(spec)


def _by_host(suites: tuple[str, ...]) -> list[str]:
    """The suites whose kernel headers run on this system first: kbuild's tools need its libc or an older one."""
    codename = ""
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("VERSION_CODENAME="):
            codename = line.partition("=")[2].strip('"')
    codenames = list(dict.fromkeys(suite.split("-")[0] for suite in SUITES))
    newer = codenames[codenames.index(codename) + 1 :] if codename in codenames else []
    return sorted(suites, key=lambda suite: suite.split("-")[0] in newer)


def available(suite: str) -> list[str]:
    """The kernel releases that a suite has now, oldest first. Asks the mirror."""
    names = debian.Suite(suite).names(_IMAGE_PACKAGE)
    return sorted((name.removeprefix("linux-image-") for name in names), key=_order)


def _find(spec: str) -> tuple[debian.Suite, str]:
    """The suite that has `spec`, and the newest release there that matches."""
    if spec in SUITES:
        # The metapackage names the suite's own kernel; the pool may hold newer series beside it.
        suite = debian.Suite(spec)
        for name in suite.dependencies("linux-image-amd64"):
            if re.fullmatch(_IMAGE_PACKAGE, name):
                return suite, name.removeprefix("linux-image-")
        raise UnsupportedError(f"kernel of suite {spec}", "its linux-image-amd64 depends on no kernel image")
    if not re.fullmatch(r"\d+\.\d+[\w.+-]*", spec):
        raise InputError(
            f"kernel '{spec}' is neither a release, a path nor a suite",
            expected=f"such as 6.1, 6.12.117+deb12-amd64, ./vmlinuz or one of {', '.join(SUITES)}",
        )
    series = ".".join(spec.split(".")[:2]).split("-")[0]
    ordered = _by_host(_SERIES.get(series, SUITES[::-1]))
    problems: list[str] = []
    for name in ordered:
        try:
            matching = [release for release in available(name) if _matches(spec, release)]
        except debian.PackageError as error:
            problems.append(str(error))
            continue
        if matching:
            return debian.Suite(name), matching[-1]
    looked = f"not in {', '.join(ordered)}" + "".join(f"; {problem}" for problem in problems)
    raise UnsupportedError(
        f"kernel {spec}", looked, "name a release that `sampleblk-lab kernel list --available` shows"
    )


def _relocate_headers(root: Path, release: str) -> None:
    """Debian's header tree names itself and its common half by absolute paths: point those into the cache."""
    makefile = root / "usr/src" / f"linux-headers-{release}" / "Makefile"
    final = _root() / release
    text = makefile.read_text()
    makefile.write_text(
        re.sub(r"^(include |KBUILD_OUTPUT=)/usr/src/", rf"\g<1>{final}/usr/src/", text, flags=re.MULTILINE)
    )


def fetch(spec: str | None = None) -> Kernel:
    """Gets a kernel with its modules and headers from Debian into the cache, if it is not there yet.

    Args:
        spec: As for :func:`resolve`, but no path.

    Raises:
        InputError, UnsupportedError, sampleblk_lab.kernels.debian.PackageError: As for :func:`resolve`.
    """
    suite, release = _find(spec or DEFAULT)
    target = _root() / release
    with locked(target):
        if not (target / "kernel.json").exists():
            with step(f"fetching kernel {release} from {suite.name}"), built_directory(target) as scratch:
                _unpack(suite, release, scratch)
    return _load(target)


def _unpack(suite: debian.Suite, release: str, scratch: Path) -> None:
    picture, headers = f"linux-image-{release}", f"linux-headers-{release}"
    support = [
        name
        for name in suite.dependencies(headers)
        if name.startswith(("linux-headers-", "linux-kbuild-")) and name != headers
    ]
    parts = [name for name in suite.dependencies(picture) if name in {f"linux-{part}-{release}" for part in _PARTS}]
    suite.unpack([picture, *parts, headers, *support], scratch)
    if (scratch / "usr/lib/modules").is_dir() and not (scratch / "lib").exists():
        (scratch / "lib").symlink_to("usr/lib")  # packages since trixie say where /lib really is
    if shutil.which("depmod") is None and not Path("/sbin/depmod").exists():
        raise UnsupportedError("module dependencies", "the depmod program is not installed", "apt-get install kmod")
    depmod = shutil.which("depmod") or "/sbin/depmod"
    subprocess.run([depmod, "-b", str(scratch), release], check=True)
    packed = scratch / "lib/modules" / release / "vmlinuz"
    image.extract_vmlinux(packed if packed.exists() else scratch / f"boot/vmlinuz-{release}", scratch / "vmlinux")
    _relocate_headers(scratch, release)
    tools = toolchain.prepare(
        suite,
        scratch / "usr/src" / headers,
        next((name for name in support if name.startswith("linux-kbuild-")), None),
        scratch=scratch,
        final=_root() / release,
    )
    about = {
        "release": release,
        "suite": suite.name,
        "version": suite.show(picture)[picture].get("Version", ""),
        "tools": str(tools.relative_to(cache_root())) if tools else None,
    }
    (scratch / "kernel.json").write_text(json.dumps(about, indent=1))
