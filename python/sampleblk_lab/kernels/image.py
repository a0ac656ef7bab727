# SPDX-License-Identifier: MIT
"""From the compressed image that a distribution ships to the vmlinux inside it.

QEMU starts a vmlinux directly through its PVH entry point (``CONFIG_PVH``), which saves the guest the decompression:
under TCG half of the boot. It also leaves the kernel where it was linked, so addresses are the same in each run.
"""

from __future__ import annotations

import lzma
import struct
import subprocess
import zlib
from pathlib import Path

from sampleblk_lab.errors import FormatError, UnsupportedError
from sampleblk_lab.paths import write_atomically

_ELF = b"\x7fELF"


def _decompress(payload: bytes, path: Path) -> bytes:
    if payload.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMADecompressor().decompress(payload)
    if payload.startswith(b"\x1f\x8b"):
        return zlib.decompressobj(wbits=31).decompress(payload)
    if payload.startswith(b"\x28\xb5\x2f\xfd"):
        # The last four bytes are the size that the kernel's own decompressor wants; zstd would call them garbage.
        try:
            done = subprocess.run(["zstd", "-dcq"], input=payload[:-4], capture_output=True, check=False)
        except FileNotFoundError:
            raise UnsupportedError(
                f"decompressing {path}", "the zstd program is not installed", "apt-get install zstd"
            ) from None
        if not done.stdout.startswith(_ELF):
            raise FormatError(
                str(path), 0, f"a zstd payload that unpacks ({done.stderr.decode(errors='replace').strip()})"
            )
        return done.stdout
    raise UnsupportedError(f"decompressing {path}", f"unknown compression (magic {payload[:4].hex()})")


def _payload(image: bytes, path: Path) -> bytes:
    """The compressed kernel in a bzImage: Documentation/arch/x86/boot.rst, setup_sects and payload_offset."""
    if len(image) < 0x250 or image[0x1FE:0x200] != b"\x55\xaa":
        raise FormatError(str(path), 0x1FE, "the boot signature of a bzImage, or an ELF vmlinux")
    setup_sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    payload = image[start : start + length]
    if len(payload) != length:
        raise FormatError(str(path), start, f"{length} bytes of payload, found {len(payload)}")
    return payload


def extract_vmlinux(image: Path, target: Path) -> Path:
    """Writes the vmlinux inside `image` to `target`; an image that is one already is linked.

    Raises:
        FormatError: `image` is no kernel image.
        UnsupportedError: Its compression is unknown here.
    """
    data = image.read_bytes()
    if data.startswith(_ELF):
        target.unlink(missing_ok=True)
        target.symlink_to(image.absolute())
        return target
    vmlinux = _decompress(_payload(data, image), image)
    if not vmlinux.startswith(_ELF):
        raise FormatError(str(image), 0, "an ELF vmlinux inside the image")
    write_atomically(target, vmlinux)
    return target


def release_of(image: Path) -> str:
    """The release that a bzImage says it is (``uname -r``): the kernel_version string of its header."""
    data = image.read_bytes()[: 64 * 1024]
    if data[0x1FE:0x200] != b"\x55\xaa":
        raise FormatError(str(image), 0x1FE, "the boot signature of a bzImage")
    at = struct.unpack_from("<H", data, 0x20E)[0] + 0x200
    return data[at : data.index(b"\0", at)].split()[0].decode()
