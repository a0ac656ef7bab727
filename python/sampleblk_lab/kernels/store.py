# SPDX-License-Identifier: MIT
"""The kernels of the cache: what is there, what a name means, and how a missing one is fetched."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from sampleblk_lab.errors import FormatError, InputError, UnsupportedError
from sampleblk_lab.kernels import config, debian, image
from sampleblk_lab.paths import (
    built_directory,
    cache_root,
    fingerprint,
    in_home,
    locked,
    remove,
    search_path,
    write_atomically,
)
from sampleblk_lab.progress import note, step

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


# What kernel.json is written as. A kernel of another form, or a damaged one, is fetched anew: 2 follows what kbuild's
# packages depend on, which 1 left to the system; 3 knows its image by size and hash.
_FORMAT = 3

# The packages that the one of an image has been split into since 7.0.
_PARTS = ("base", "binary", "modules")


# Files of lib/modules/RELEASE that tell its state, and of a build tree that modules depend on (kbuild/modules.rst).
_INDICES = ("modules.dep", "modules.order", "modules.builtin")
_BUILD_INPUTS = (".config", "Module.symvers", "include/config/auto.conf", "include/config/kernel.release", "vmlinux")


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
    def identity(self) -> str:
        """Changes when what would be booted does: the image, or the modules beside it."""
        parts = [self.release, self.version, fingerprint(self.image)]
        if self.modules is not None:
            # modules_install writes these anew whatever else it does.
            parts += [fingerprint(self.modules / name) for name in _INDICES if (self.modules / name).exists()]
        return "\n".join(parts)

    @property
    def build_identity(self) -> str:
        """Changes when modules must be built again for it: what :attr:`identity` says, and what kbuild reads."""
        parts = [self.identity]
        if self.build is not None:
            parts.append(str(self.build))
            parts += [fingerprint(self.build / name) for name in _BUILD_INPUTS if (self.build / name).exists()]
        return "\n".join(parts)

    def beside(self, name: str, in_tree: str = "") -> list[Path]:
        """Where a file that goes with the image may be, likeliest first.

        Debian's packages had it beside the image, with the release in its name, and have it among the modules since
        7.0, as Fedora's; ``make`` leaves it in the tree, and `sampleblk-lab kernel fetch` unpacks a ``boot``.

        Args:
            name: Its name: ``"config"``, ``"System.map"``.
            in_tree: Its name in a build tree, where that is another.
        """
        folder = self.image.parent
        places = [folder / f"{name}-{self.release}", folder / name, folder / f"boot/{name}-{self.release}"]
        if self.build is not None:
            places.insert(1, self.build / (in_tree or name))  # which may have been configured anew since
        if self.modules is not None:
            places.append(self.modules / name)
        return places

    @property
    def configurations(self) -> list[Path]:
        """Where the configuration that it was built with may be."""
        return self.beside("config", ".config")

    @property
    def series(self) -> str:
        """The first two numbers of the release, such as ``"6.1"``."""
        return ".".join(self.release.split(".")[:2])

    @property
    def search_path(self) -> str:
        """The PATH that a build for it needs: `tools` before all else."""
        return f"{self.tools}{os.pathsep}{search_path()}" if self.tools else search_path()


# Where a system keeps the kernels that it boots.
_BOOT, _MODULES = Path("/boot"), Path("/lib/modules")


def _order(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release))


def headers_are_whole(build: Path) -> bool:
    """Whether all is there that a header tree names by absolute paths, which are another cache's if this one was moved.

    Raises:
        OSError: There is no such tree.
    """
    named = re.findall(r"^(?:include |KBUILD_OUTPUT=)(/.+)", (build / "Makefile").read_text(errors="replace"), re.M)
    return all(os.path.exists(path) for path in named)  # noqa: PTH110


def _load(folder: Path) -> Kernel | None:
    """The kernel in a folder of the cache; None when it is not whole."""
    try:
        about = json.loads((folder / "kernel.json").read_text())
        release = str(about["release"])
        modules, build = folder / "lib/modules" / release, folder / "usr/src" / f"linux-headers-{release}"
        tools = cache_root() / about["tools"] if about["tools"] else None
        if about["format"] != _FORMAT or release != folder.name:
            return None
        if (folder / "vmlinux").stat().st_size != about["image_bytes"]:
            return None
        if not (modules / "modules.dep").exists() or not (tools or build).exists() or not headers_are_whole(build):
            return None
        suite, version = str(about["suite"]), str(about["version"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return Kernel(release, folder / "vmlinux", modules, build, suite, version, tools)


def installed() -> list[Kernel]:
    """The kernels of the cache, oldest release first."""
    found = [_load(path.parent) for path in folder().glob("*/kernel.json")]
    return sorted((kernel for kernel in found if kernel is not None), key=lambda kernel: _order(kernel.release))


def damaged() -> list[Path]:
    """Folders of the cache that were a kernel and cannot be used as they are; the next use fetches it again.

    Reads every image whole.
    """
    found = []
    for path in sorted(folder().glob("[!.]*/")):  # what another process unpacks has a hidden name
        kernel = _load(path)
        if kernel is None or not _is_as_unpacked(kernel):
            found.append(path)
    return found


def _matches(spec: str, release: str) -> bool:
    return release == spec or re.match(rf"{re.escape(spec)}(?![0-9])", release) is not None


def _from_path(path: Path) -> Kernel:
    """A kernel of the user's own: an image file, a build tree, or a folder with ``boot`` and ``lib/modules``."""
    if path.is_dir():
        built = path / "arch/x86/boot/bzImage"
        if built.is_file():
            configured = path / "include/config/kernel.release"
            if not configured.is_file():
                raise InputError(
                    f"kernel tree '{path}' has no include/config/kernel.release",
                    expected="a tree as it was built: make bzImage modules",
                )
            release = configured.read_text(errors="replace").strip()
            with contextlib.suppress(FormatError):  # check() says what is wrong with an image
                if (its := image.release_of(built)) != release:
                    raise InputError(
                        f"kernel tree '{path}' has a bzImage of {its}, and is configured as {release}",
                        expected="both of one release: make bzImage modules",
                    )
            modules = path / "lib/modules" / release
            return Kernel(release, built, modules if modules.is_dir() else None, path)
        images = sorted(path.glob("boot/vmlinuz-*"))
        if len(images) != 1:
            raise InputError(
                f"kernel folder '{path}' has {len(images)} boot/vmlinuz-* files",
                expected="a build tree with arch/x86/boot/bzImage, or a folder with one boot/vmlinuz-RELEASE",
            )
        release = image.release_of(images[0])
        modules, headers = path / "lib/modules" / release, path / "usr/src" / f"linux-headers-{release}"
        return Kernel(release, images[0], modules if modules.is_dir() else None, headers if headers.is_dir() else None)
    release = image.release_of(path)
    # An image in a /boot or a /lib/modules/RELEASE has its modules beside it; else they may be this system's.
    beside = [path.parent, path.parent.parent / "lib/modules" / release, _MODULES / release]
    modules_there = next((each for each in beside if (each / "modules.dep").is_file() and each.name == release), None)
    build = modules_there / "build" if modules_there is not None and (modules_there / "build").exists() else None
    return Kernel(release, path, modules_there, build)


def _of_this_machine() -> Kernel:
    """The kernel that runs here, from where distributions keep it."""
    release = os.uname().release
    candidates = [_BOOT / f"vmlinuz-{release}", _MODULES / release / "vmlinuz"]
    found = next((path for path in candidates if path.is_file()), None)
    if found is None:
        raise UnsupportedError(
            "kernel host",
            f"the image of {release} is neither {candidates[0]} nor {candidates[1]}",
            "give the path of an image, or a release to fetch",
        )
    if not os.access(found, os.R_OK):
        raise UnsupportedError(
            "kernel host", f"{found} is for root to read", f"sudo chmod a+r {shlex.quote(str(found))}"
        )
    return _from_path(found)


def check(kernel: Kernel) -> None:
    """Looks, as far as that can be done quickly, whether a VM could boot a kernel of the user's own.

    Raises:
        FormatError: Its image is cut off, or is none.
        UnsupportedError: Its configuration lacks what a VM needs; names the options.
    """
    image.check(kernel.image)
    if is_cached(kernel):
        return  # Debian's own have it all
    missing = missing_options(kernel, inside=False)
    if missing:
        lacks = "does not have" if kernel.modules is not None else "comes without modules and does not have built in"
        raise UnsupportedError(
            f"kernel {kernel.image}",
            f"it {lacks} what a VM needs: {', '.join(missing)}",
            _remedy(kernel, known=True),
        )


def missing_options(kernel: Kernel, *, inside: bool) -> list[str]:
    """What a VM needs and a kernel has neither built in nor, if it comes with modules, as one of these.

    Says nothing where the configuration is not known.

    Args:
        kernel: The kernel.
        inside: Look for the configuration also in the image, which takes half a second.
    """
    text = config.find(kernel.configurations, kernel.image if inside else None)
    return [] if text is None else config.lacks(text, modules=kernel.modules is not None)


def _remedy(kernel: Kernel, *, known: bool) -> str:
    """What to do about options that are missing."""
    named = kernel.image
    if kernel.modules is not None:
        named = next((path for path in kernel.configurations if path.is_file()), named)
    elif kernel.build is not None and named.is_relative_to(kernel.build):
        named = kernel.build
    command = f"sampleblk-lab kernel config {shlex.quote(str(named))}" if known else "sampleblk-lab kernel config"
    built = f"build it with these options; `{command}` prints all that it should have, as a fragment to merge"
    if kernel.modules is not None:
        return built
    return (
        f"give the folder that has boot/vmlinuz-{kernel.release} and lib/modules/{kernel.release}, or {built} "
        "(without modules each must be =y)"
    )


def why_not(kernel: Kernel) -> str:
    """What may be the reason that a kernel did not reach its host; empty when there is nothing to say of it."""
    if is_cached(kernel):
        return ""
    options = missing_options(kernel, inside=True)
    remedy = _remedy(kernel, known=bool(options))
    if kernel.modules is not None:
        return f"the kernel lacks {', '.join(options)}; {remedy}" if options else ""
    options = options or [*config.BUILT_IN, *config.MODULES.values()]
    return f"the kernel comes without modules, so it needs built in: {', '.join(options)}; {remedy}"


def resolve(spec: str | None = None, *, download: bool = True) -> Kernel:
    """The kernel that a name means.

    Args:
        spec: A release (``6.1.0-56-amd64``) or its beginning (``6.1``: the newest of the cache), a path (an image, a
            build tree, a folder with ``boot`` and ``lib/modules``), a Debian package (``linux-image-….deb``, with
            others beside it or after colons), a Debian suite (``trixie-backports``) or ``host``, the kernel that runs
            here. None: ``$SAMPLEBLK_KERNEL``, else :data:`DEFAULT`.
        download: Fetch what the cache lacks.

    Raises:
        InputError: The name means nothing.
        UnsupportedError: The cache lacks it and `download` is off, or there is no Debian mirror to ask.
        sampleblk_lab.kernels.debian.PackageError: apt could not get it.
    """
    if spec == "":
        raise InputError("kernel ''", expected="a release or its beginning, a path, a Debian suite, or host")
    spec = spec or os.environ.get("SAMPLEBLK_KERNEL") or DEFAULT
    if ".deb" in spec:
        from sampleblk_lab.kernels import packages  # which a VM's start has no use for, else

        if packages.is_meant(spec):
            unpacked = packages.unpack(spec)
            return Kernel(unpacked.release, unpacked.image, unpacked.modules, unpacked.build, version=unpacked.version)
    if "/" in spec:
        path = in_home(spec).absolute()
        if not path.exists():
            raise InputError(f"kernel '{spec}' does not exist", expected="the path of an image or of a kernel folder")
        return _from_path(path)
    if spec == "host":
        return _of_this_machine()
    wanted = spec
    if spec in SUITES:
        with contextlib.suppress(OSError):
            wanted = _noted(spec).read_text(errors="replace")
    matching = [kernel for kernel in installed() if _matches(wanted, kernel.release)]
    if matching:
        return matching[-1]
    if not download:
        _check_name(spec)
        raise UnsupportedError(f"kernel {spec}", "not in the cache", f"sampleblk-lab kernel fetch {spec}")
    return fetch(spec)


def _noted(suite: str) -> Path:
    """Says which kernel of the cache is a suite's own, as it was when somebody asked for it: it may have others."""
    return folder() / f"{suite}.release"


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
    """The kernel releases that a suite has now, oldest first. Asks the mirror. Raises InputError."""
    if not re.fullmatch(r"[a-z][\w.-]*", suite):  # it is a folder's name, and a word of sources.list
        raise InputError(f"suite {suite!r} is no name of one", expected=f"such as {', '.join(SUITES)}")
    names = debian.Suite(suite).names(_IMAGE_PACKAGE)
    return sorted((name.removeprefix("linux-image-") for name in names), key=_order)


def _check_name(spec: str) -> None:
    if spec not in SUITES and not re.fullmatch(r"\d+\.\d+[\w.+-]*", spec):
        raise InputError(
            f"kernel '{spec}' is neither a release, a path nor a suite",
            expected=f"such as 6.1, 6.12.117+deb12-amd64, ./vmlinuz or one of {', '.join(SUITES)}",
        )


def _find(spec: str) -> tuple[debian.Suite, str]:
    """The suite that has `spec`, and the newest release there that matches."""
    if spec in SUITES:
        # The metapackage names the suite's own kernel; the pool may hold newer series beside it.
        suite = debian.Suite(spec)
        for name in suite.dependencies("linux-image-amd64"):
            if re.fullmatch(_IMAGE_PACKAGE, name):
                return suite, name.removeprefix("linux-image-")
        raise UnsupportedError(f"kernel of suite {spec}", "its linux-image-amd64 depends on no kernel image")
    _check_name(spec)
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
            for problem in problems:  # a suite that was to come first may have a newer one
                note(f"Linux {matching[-1]} is taken from {name}: {problem}")
            return debian.Suite(name), matching[-1]
    looked = f"not in {', '.join(ordered)}" + "".join(f"; {problem}" for problem in problems)
    raise UnsupportedError(
        f"kernel {spec}", looked, "name a release that `sampleblk-lab kernel list --available` shows"
    )


def fetch(spec: str | None = None) -> Kernel:
    """Gets a kernel with its modules and headers from Debian into the cache, if it is missing there.

    Args:
        spec: As for :func:`resolve`, but no path.

    Raises:
        InputError, UnsupportedError, sampleblk_lab.kernels.debian.PackageError: As for :func:`resolve`.
    """
    suite, release = _find(DEFAULT if spec is None else spec)
    target = folder() / release
    with locked(target):
        kernel = _load(target)
        if kernel is None:
            with step(f"fetching kernel {release} from {suite.name}"), built_directory(target) as scratch:
                _unpack(suite, release, scratch)
            kernel = _load(target)
    assert kernel is not None
    if spec in SUITES:
        write_atomically(_noted(spec), release.encode())
    return kernel


def folder() -> Path:
    """Where the kernels of the cache are, each in a folder of its release's name."""
    return cache_root() / "kernels"


def is_cached(kernel: Kernel) -> bool:
    """Whether a kernel is one of the cache, and not of the user's own."""
    return kernel.image.parent.parent == folder()


def forget(kernel: Kernel) -> None:
    """Takes a kernel of the cache away."""
    with locked(kernel.image.parent):
        remove(kernel.image.parent)


def forget_damaged(kernel: Kernel) -> bool:
    """Takes a kernel of the cache away if its image is not what was unpacked; says whether it was so.

    Reads the whole image: to be asked when a boot has failed.
    """
    if not is_cached(kernel) or _is_as_unpacked(kernel):
        return False
    forget(kernel)
    return True


def _is_as_unpacked(kernel: Kernel) -> bool:
    try:
        expected = json.loads((kernel.image.parent / "kernel.json").read_text())["image_sha256"]
        return bool(hashlib.sha256(kernel.image.read_bytes()).hexdigest() == expected)
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _unpack(suite: debian.Suite, release: str, scratch: Path) -> None:
    from sampleblk_lab.kernels import toolchain

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
    toolchain.run_depmod(scratch, release)
    packed = scratch / "lib/modules" / release / "vmlinuz"
    image.extract_vmlinux(packed if packed.exists() else scratch / f"boot/vmlinuz-{release}", scratch / "vmlinux")
    toolchain.relocate_headers(scratch, release, folder() / release)
    tools = toolchain.prepare(
        suite,
        scratch / "usr/src" / headers,
        next((name for name in support if name.startswith("linux-kbuild-")), None),
        scratch=scratch,
        final=folder() / release,
    )
    vmlinux = scratch / "vmlinux"
    about = {
        "format": _FORMAT,
        "image_bytes": vmlinux.stat().st_size,
        "image_sha256": hashlib.sha256(vmlinux.read_bytes()).hexdigest(),
        "release": release,
        "suite": suite.name,
        "version": suite.show(picture)[picture].get("Version", ""),
        "tools": str(tools.relative_to(cache_root())) if tools else None,
    }
    (scratch / "kernel.json").write_text(json.dumps(about, indent=1))
