# SPDX-License-Identifier: MIT
"""What a kernel's configuration must have for a VM to boot it and reach the host (Documentation/kbuild/kconfig.rst)."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

from sampleblk_lab.errors import SampleblkError
from sampleblk_lab.kernels import image

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

# module -> what builds it. The initramfs brings these where they are modules.
MODULES = {
    "virtio_pci": "CONFIG_VIRTIO_PCI",
    "virtio_console": "CONFIG_VIRTIO_CONSOLE",
    "9pnet_virtio": "CONFIG_NET_9P_VIRTIO",
    "9p": "CONFIG_9P_FS",
    "overlay": "CONFIG_OVERLAY_FS",
}

# What has to be built in, with modules or without.
BUILT_IN = (
    "CONFIG_BINFMT_ELF",
    "CONFIG_BLK_DEV_INITRD",
    "CONFIG_DEVTMPFS",
    "CONFIG_PCI",
    "CONFIG_PROC_FS",
    "CONFIG_SERIAL_8250",  # as a module it takes the console's option away
    "CONFIG_SERIAL_8250_CONSOLE",
    "CONFIG_SYSFS",
    "CONFIG_TMPFS",
    "CONFIG_UNIX98_PTYS",
)

# What Kconfig asks for before it offers those.
_BEHIND = (
    "CONFIG_64BIT",
    "CONFIG_ACPI",
    "CONFIG_NET",
    "CONFIG_NETWORK_FILESYSTEMS",
    "CONFIG_NET_9P",
    "CONFIG_SHMEM",
    "CONFIG_TTY",
    "CONFIG_VIRTIO_MENU",
)

# What experiments want beyond a VM; without one of these its part of the toolkit says so.
_WANTED = {
    "the driver, as a module": ("CONFIG_MODULES", "CONFIG_MODULE_UNLOAD", "CONFIG_BLOCK", "CONFIG_BLK_DEV"),
    "recordings and profiles": (
        "CONFIG_FTRACE",
        "CONFIG_FUNCTION_TRACER",
        "CONFIG_FUNCTION_GRAPH_TRACER",
        "CONFIG_DYNAMIC_FTRACE",
        "CONFIG_FTRACE_SYSCALLS",
        "CONFIG_BLK_DEV_IO_TRACE",
        "CONFIG_KPROBES",
        "CONFIG_KPROBE_EVENTS",
        "CONFIG_UPROBE_EVENTS",
        "CONFIG_HIST_TRIGGERS",
        "CONFIG_PERF_EVENTS",
        "CONFIG_KALLSYMS",
        "CONFIG_DEBUG_FS",
        "CONFIG_DEBUG_INFO_BTF",
    ),
    "the stacks of what hangs": ("CONFIG_MAGIC_SYSRQ",),
    "file systems": ("CONFIG_EXT4_FS", "CONFIG_XFS_FS", "CONFIG_BTRFS_FS", "CONFIG_F2FS_FS"),
}

# The mark before the configuration that CONFIG_IKCONFIG puts into an image (kernel/configs.c).
_IKCONFIG = b"IKCFG_ST"

# Of a configuration, in characters: the largest have a third of a megabyte.
_MOST = 16 << 20


def _embedded(path: Path) -> str | None:
    try:
        vmlinux = image.vmlinux_of(path)
        at = vmlinux.find(_IKCONFIG)
        return None if at < 0 else zlib.decompressobj(wbits=31).decompress(vmlinux[at + len(_IKCONFIG) :]).decode()
    except (SampleblkError, OSError, zlib.error, UnicodeDecodeError):
        return None


def read(path: Path) -> str | None:
    """The text of a configuration, as ``make`` writes it or ``/proc/config.gz`` has it; None: it is something else."""
    import gzip  # which a VM's start has no use for

    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path, "rt", errors="replace") if packed else path.open(errors="replace") as text:
            start = text.read(4096)
            return start + text.read(_MOST) if "CONFIG_" in start and "\0" not in start else None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return None


def find(places: Iterable[Path], image_too: Path | None = None) -> str | None:
    """The configuration that a kernel was built with; None: it is missing.

    Args:
        places: Where it may be, as :meth:`Kernel.beside` says.
        image_too: An image to look into as well, which takes half a second.
    """
    for place in places:
        if place.is_file():
            return place.read_text(errors="replace")
    return None if image_too is None else _embedded(image_too)


def _chosen(text: str) -> dict[str, str]:
    """The options and their values; of several lines about one the last counts, as for Kconfig.

    It looks at the first letter of a value (scripts/kconfig/confdata.c, conf_set_sym_val()): blanks may follow.
    """
    lines = re.finditer(r"^(?:(CONFIG_\w+)=(.)|# (CONFIG_\w+) is not set[ \t]*$)", text, re.MULTILINE)
    return {line[1] or line[3]: line[2] or "n" for line in lines}


def _lacking(chosen: Mapping[str, str], options: Iterable[str], *, modules: bool) -> list[str]:
    return [
        option
        for option in options
        if chosen.get(option) not in (("y", "m") if modules and option not in BUILT_IN else ("y",))
    ]


def missing(text: str = "", *, modules: bool = True) -> dict[str, list[str]]:
    """What a configuration lacks for a VM, and for experiments in it: options, by what they are for.

    Args:
        text: The configuration; empty: everything.
        modules: The kernel's modules are at hand, or will be.
    """
    chosen = _chosen(text)
    groups = {"a virtual machine": (*_BEHIND, *BUILT_IN, *MODULES.values()), **_WANTED}
    found = {purpose: _lacking(chosen, options, modules=modules) for purpose, options in groups.items()}
    return {purpose: options for purpose, options in found.items() if options}


def fragment(options: Mapping[str, list[str]]) -> str:
    """What is missing, as lines for ``scripts/kconfig/merge_config.sh``."""
    return "".join(
        line
        for purpose, named in options.items()
        for line in (f"# for {purpose}\n", *(f"{each}=y\n" for each in named))
    )


def merged(text: str, options: Mapping[str, list[str]]) -> str:
    """A configuration with what is missing in it, as ``merge_config.sh`` would write it: for ``make olddefconfig``."""
    replaced = {option for named in options.values() for option in named}
    kept = [
        line
        for line in text.splitlines()
        if not ((option := re.match(r"(?:# )?(CONFIG_\w+)(?:=| is not set)", line)) and option[1] in replaced)
    ]
    return "".join(f"{line}\n" for line in kept) + fragment(options)


def lacks(text: str, *, modules: bool) -> list[str]:
    """The options that a VM needs and a configuration has not, or has as modules that nobody brings.

    Args:
        text: The configuration.
        modules: The kernel's modules are at hand.
    """
    return _lacking(_chosen(text), (*BUILT_IN, *MODULES.values()), modules=modules)
