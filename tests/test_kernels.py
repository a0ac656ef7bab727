# SPDX-License-Identifier: MIT
"""Names of kernels, Debian's packages of them, and what is inside an image."""

import gzip
import struct
from pathlib import Path

import pytest

from sampleblk_lab import kernels
from sampleblk_lab.errors import FormatError, InputError, UnsupportedError
from sampleblk_lab.kernels import debian, image, store
from sampleblk_lab.vm import initramfs


def _bzimage(payload: bytes, release: str = "6.1.0-test") -> bytes:
    """As little of a bzImage as the boot protocol asks for."""
    header = bytearray(1024)
    header[0x1F1] = 1
    header[0x1FE:0x200] = b"\x55\xaa"
    struct.pack_into("<H", header, 0x20E, 0x100)
    header[0x300 : 0x300 + len(release) + 7] = release.encode() + b" (me) \0"
    struct.pack_into("<II", header, 0x248, 0, len(payload))
    return bytes(header) + payload


def test_extracts_the_vmlinux(tmp_path: Path) -> None:
    vmlinux = b"\x7fELF" + bytes(1000)
    packed = tmp_path / "vmlinuz"
    packed.write_bytes(_bzimage(gzip.compress(vmlinux)))
    assert image.extract_vmlinux(packed, tmp_path / "out").read_bytes() == vmlinux
    assert image.release_of(packed) == "6.1.0-test"
    plain = tmp_path / "vmlinux"
    plain.write_bytes(vmlinux)
    assert image.extract_vmlinux(plain, tmp_path / "out2").read_bytes() == vmlinux


def test_says_what_is_wrong_with_an_image(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes(b"hello")
    with pytest.raises(FormatError, match="boot signature"):
        image.extract_vmlinux(bad, tmp_path / "out")
    bad.write_bytes(_bzimage(b"????" * 10))
    with pytest.raises(UnsupportedError, match="3f3f3f3f"):
        image.extract_vmlinux(bad, tmp_path / "out")
    whole = _bzimage(gzip.compress(b"\x7fELF"))
    bad.write_bytes(whole[:-5])
    with pytest.raises(FormatError, match="bytes of payload"):
        image.extract_vmlinux(bad, tmp_path / "out")


def test_resolves_what_the_cache_has() -> None:
    kernel = kernels.resolve("6.1")
    assert kernel.series == "6.1"
    assert kernel.image.exists()
    assert kernel.modules is not None
    assert (kernel.modules / "modules.dep").exists()
    assert kernel.build is not None
    assert (kernel.build / "Makefile").exists()
    assert kernels.resolve(kernel.release) == kernel
    assert kernel in kernels.installed()


def test_a_prefix_is_not_a_longer_number(monkeypatch: pytest.MonkeyPatch) -> None:
    one = store.Kernel("6.12.95+deb12-amd64", Path("x"), None, None)
    monkeypatch.setattr(store, "installed", lambda: [one])
    with pytest.raises(UnsupportedError, match=r"kernel 6\.1"):
        kernels.resolve("6.1", download=False)
    assert kernels.resolve("6.12", download=False) == one


def test_releases_are_in_the_order_of_their_numbers() -> None:
    releases = ["6.1.0-9-amd64", "6.1.0-56-amd64", "6.12.5-amd64", "5.10.0-40-amd64"]
    assert sorted(releases, key=store._order) == ["5.10.0-40-amd64", "6.1.0-9-amd64", "6.1.0-56-amd64", "6.12.5-amd64"]


def test_only_plain_images_are_kernels() -> None:
    import re

    def taken(name: str) -> bool:
        return re.fullmatch(store._IMAGE_PACKAGE, name) is not None

    assert taken("linux-image-6.1.0-56-amd64")
    assert taken("linux-image-6.12.117+deb12-amd64")
    for other in ("6.1.0-56-rt-amd64", "6.1.0-56-cloud-amd64", "6.1.0-56-amd64-dbg", "6.12-amd64", "amd64"):
        assert not taken(f"linux-image-{other}"), other


def test_a_kernel_folder_must_have_one_image(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"0 boot/vmlinuz"):
        kernels.resolve(f"{tmp_path}/")


def test_a_build_tree_is_a_kernel(tmp_path: Path) -> None:
    (tmp_path / "arch/x86/boot").mkdir(parents=True)
    (tmp_path / "arch/x86/boot/bzImage").touch()
    (tmp_path / "include/config").mkdir(parents=True)
    (tmp_path / "include/config/kernel.release").write_text("7.0.0-mine\n")
    kernel = kernels.resolve(str(tmp_path))
    assert (kernel.release, kernel.modules, kernel.build) == ("7.0.0-mine", None, tmp_path)


def test_initramfs_has_each_module_after_what_it_needs() -> None:
    kernel = kernels.resolve("6.1")
    names = [initramfs._module_name(path.name) for path in initramfs.module_files(kernel)]
    for earlier, later in (
        ("virtio", "virtio_pci"),
        ("virtio_ring", "virtio"),
        ("9pnet", "9pnet_virtio"),
        ("9pnet", "9p"),
    ):
        assert names.index(earlier) < names.index(later)
    with pytest.raises(UnsupportedError, match="no module nonesuch"):
        initramfs.module_files(kernel, ("nonesuch",))


def test_cpio_is_what_cpio_reads(tmp_path: Path) -> None:
    import subprocess

    archive = initramfs.cpio([("a", 0o040755, b""), ("a/b", 0o100644, b"hello"), ("c", 0o100755, b"x" * 4097)])
    listed = subprocess.run(["cpio", "-i", "--quiet"], input=archive, cwd=tmp_path, capture_output=True, check=True)
    assert listed.stderr == b""
    assert (tmp_path / "a/b").read_bytes() == b"hello"
    assert (tmp_path / "c").stat().st_size == 4097


def test_a_mirror_of_one_s_own_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMPLEBLK_DEBIAN_MIRROR", "http://mirror.example/debian/")
    assert debian.mirror() == "http://mirror.example/debian"
    assert "http://mirror.example/debian-security bookworm-security" in debian.Suite("bookworm-security")._source_line()


def test_what_apt_says_is_in_the_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(tmp_path))
    monkeypatch.setenv("SAMPLEBLK_DEBIAN_MIRROR", f"file:{tmp_path}/no-mirror")
    with pytest.raises(debian.PackageError, match="no-mirror"):
        debian.Suite("bookworm").update()
