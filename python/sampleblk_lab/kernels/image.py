# SPDX-License-Identifier: MIT
"""From the compressed image that a distribution ships to the vmlinux inside it.

QEMU starts a vmlinux directly through its PVH entry point (``CONFIG_PVH``), which saves the guest the decompression:
under TCG half of the boot. It also leaves the kernel where it was linked, so addresses are the same in each run.
"""

from __future__ import annotations

import bz2
import lzma
import os
import re
import struct
import subprocess
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from sampleblk_lab.errors import FormatError, UnsupportedError
from sampleblk_lab.paths import write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable

_ELF = b"\x7fELF"
# The fields of a bzImage that we read end here (Documentation/arch/x86/boot.rst).
_SETUP = 0x250
_BANNER = re.compile(rb"Linux version ([\w.+~-]+) \(")


# All that CONFIG_KERNEL_* offers, by the first bytes: what Python unpacks itself, and which program does the others.
_LIBRARIES: tuple[tuple[tuple[bytes, ...], Callable[[bytes], bytes]], ...] = (
    ((b"\xfd7zXZ\0", b"\x5d\0\0"), lambda packed: lzma.LZMADecompressor().decompress(packed)),
    ((b"\x1f\x8b",), lambda packed: zlib.decompressobj(wbits=31).decompress(packed)),
    ((b"BZh",), lambda packed: bz2.BZ2Decompressor().decompress(packed)),
)
_PROGRAMS = ((b"\x28\xb5\x2f\xfd", "zstd"), (b"\x02\x21\x4c\x18", "lz4"), (b"\x89LZO", "lzop"))


def run_decompressor(program: str, packed: bytes, path: Path) -> subprocess.CompletedProcess[bytes]:
    """Unpacks what `program`, which is in a package of that name, has packed of the file `path`.

    Raises:
        UnsupportedError: It is not installed.
    """
    try:
        return subprocess.run([program, "-dcq"], input=packed, capture_output=True, check=False)
    except FileNotFoundError:
        raise UnsupportedError(
            f"decompressing {path}", f"the {program} program is not installed", f"apt-get install {program}"
        ) from None


def _unpack(payload: bytes, path: Path) -> tuple[bytes, str]:
    """The payload unpacked, as far as that goes, and what was wrong with it."""
    for magics, library in _LIBRARIES:
        if payload.startswith(magics):
            try:
                return library(payload), ""
            except (lzma.LZMAError, zlib.error, OSError) as error:  # OSError: bz2's
                return b"", str(error)
    for magic, program in _PROGRAMS:
        if payload.startswith(magic):
            # The size at the end is no part of it: they would call it garbage.
            done = run_decompressor(program, payload[:-4], path)
            said = done.stderr.decode(errors="replace").strip() or f"{program} ends with status {done.returncode}"
            return (b"", said) if done.returncode else (done.stdout, "")
    raise UnsupportedError(f"decompressing {path}", f"unknown compression (magic {payload[:4].hex()})")


def _decompress(payload: bytes, path: Path) -> bytes:
    unpacked, said = _unpack(payload, path)
    # The kernel's own decompressor needs it there too, whatever the compression (arch/x86/boot/compressed/mkpiggy.c).
    size = int.from_bytes(payload[-4:], "little")
    if len(unpacked) != size:
        raise FormatError(str(path), 0, f"a payload that unpacks to {size} bytes ({said or f'it has {len(unpacked)}'})")
    return unpacked


def _check_setup(image: bytes, path: Path) -> None:
    """Raises FormatError where an image does not begin as a bzImage does: the boot sector of a disk is none."""
    if len(image) < _SETUP or image[0x1FE:0x200] != b"\x55\xaa" or image[0x202:0x206] != b"HdrS":
        raise FormatError(str(path), 0x1FE, "the boot signature of a bzImage, or an ELF vmlinux")


def _payload(image: bytes, path: Path) -> bytes:
    """The compressed kernel in a bzImage: Documentation/arch/x86/boot.rst, setup_sects and payload_offset."""
    _check_setup(image, path)
    setup_sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    payload = image[start : start + length]
    if len(payload) != length:
        raise FormatError(str(path), start, f"{length} bytes of payload, found {len(payload)}")
    return payload


def vmlinux_of(image: Path) -> bytes:
    """The vmlinux inside `image`, or the image itself if it is one. Raises FormatError, UnsupportedError."""
    data = image.read_bytes()
    if data.startswith(_ELF):
        return data
    vmlinux = _decompress(_payload(data, image), image)
    if not vmlinux.startswith(_ELF):
        raise FormatError(str(image), 0, "an ELF vmlinux inside the image")
    return vmlinux


def check(image: Path) -> None:
    """Looks whether a kernel image is as long as its own headers say; reads only those.

    Raises:
        FormatError: It is shorter, or is no x86-64 kernel image.
    """
    size = image.stat().st_size
    with image.open("rb") as file:
        head = file.read(_SETUP)
        if head.startswith(_ELF):
            if len(head) < 64:
                raise FormatError(str(image), len(head), "an ELF header of 64 bytes")
            if (head[4:6], head[18:20]) != (b"\2\1", b"\x3e\0"):  # EI_CLASS, EI_DATA, e_machine
                raise FormatError(str(image), 4, "a vmlinux of x86-64")
            programs, entry, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
            file.seek(min(programs, size))
            table = file.read(entry * count)
            if entry < 56 or len(table) < entry * count:
                raise FormatError(str(image), programs, f"{count} program headers of an ELF vmlinux")
            ends = [
                sum(struct.unpack_from("<Q", table, at + field)[0] for field in (8, 32))
                for at in range(0, len(table), entry)
            ]
            needed = max(ends, default=0)
        else:
            _check_setup(head, image)
            # setup_sects of 512 bytes behind the boot sector, then syssize paragraphs (boot.rst).
            needed = ((head[0x1F1] or 4) + 1) * 512 + struct.unpack_from("<I", head, 0x1F4)[0] * 16
    if size < needed:
        raise FormatError(str(image), size, f"a kernel image of {needed} bytes: it is cut off")


def extract_vmlinux(image: Path, target: Path) -> Path:
    """Writes the vmlinux inside `image` to `target`; an image that is one already is linked.

    Raises:
        FormatError: `image` is not a kernel image.
        UnsupportedError: Its compression is unknown here.
    """
    with image.open("rb") as file:
        if file.read(len(_ELF)) == _ELF:
            target.unlink(missing_ok=True)
            target.symlink_to(os.path.relpath(image, target.parent))
            return target
    write_atomically(target, vmlinux_of(image))
    return target


def release_of(image: Path) -> str:
    """The release that an image says it is (``uname -r``): a bzImage's kernel_version, a vmlinux's banner."""
    with image.open("rb") as file:
        data = file.read(64 * 1024)
        if data.startswith(_ELF):
            banner = _BANNER.search(data + file.read())
            if banner is None:
                raise FormatError(str(image), 0, 'a vmlinux, which has "Linux version" in it')
            return banner[1].decode()
    _check_setup(data, image)
    at = struct.unpack_from("<H", data, 0x20E)[0] + 0x200
    words = data[at : data.find(b"\0", at)].split()
    if not words:
        raise FormatError(str(image), at, "the release of a bzImage")
    return words[0].decode(errors="replace")
