# SPDX-License-Identifier: MIT
"""Names of kernels, Debian's packages of them, and what is inside an image."""

import gzip
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from sampleblk_lab import kernels
from sampleblk_lab.cli.main import main
from sampleblk_lab.errors import FormatError, InputError, UnsupportedError
from sampleblk_lab.kernels import config, debian, driver, image, store
from sampleblk_lab.vm import VM
from sampleblk_lab.vm.contents import initramfs
from support import copy_sources


def _bzimage(payload: bytes, release: str = "6.1.0-test") -> bytes:
    """As little of a bzImage as the boot protocol asks for."""
    header = bytearray(1024)
    header[0x1F1] = 1
    header[0x1FE:0x206] = b"\x55\xaa\0\0HdrS"
    struct.pack_into("<H", header, 0x20E, 0x100)
    header[0x300 : 0x300 + len(release) + 7] = release.encode() + b" (me) \0"
    struct.pack_into("<II", header, 0x248, 0, len(payload))
    return bytes(header) + payload


def test_a_suite_that_does_not_answer_is_said_beside_what_another_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was to come first, and may have a newer kernel."""

    def available(suite: str) -> list[str]:
        if suite == "bookworm":
            return ["6.1.0-9-amd64"]
        raise debian.PackageError("the mirror is away")

    monkeypatch.setattr(store, "available", available)
    suite, release = store._find("6.1")
    assert (suite.name, release) == ("bookworm", "6.1.0-9-amd64")
    assert "Linux 6.1.0-9-amd64 is taken from bookworm: the mirror is away" in capsys.readouterr().err
    monkeypatch.setattr(store, "available", lambda _suite: ["6.1.0-9-amd64"])
    store._find("6.1")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["../../elsewhere", "bookworm main", "a\nb"])
def test_what_is_no_suites_name_is_refused(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(tmp_path / "a/b/c"))
    with pytest.raises(InputError, match="is no name of one"):
        store.available(name)
    assert list(tmp_path.iterdir()) == []


def test_extracts_the_vmlinux(tmp_path: Path) -> None:
    vmlinux = b"\x7fELF" + bytes(1000)
    packed = tmp_path / "vmlinuz"
    packed.write_bytes(_bzimage(gzip.compress(vmlinux)))
    assert image.extract_vmlinux(packed, tmp_path / "out").read_bytes() == vmlinux
    assert image.release_of(packed) == "6.1.0-test"
    plain = tmp_path / "scratch/boot/vmlinuz"
    plain.parent.mkdir(parents=True)
    plain.write_bytes(vmlinux)
    image.extract_vmlinux(plain, tmp_path / "scratch/vmlinux")
    (tmp_path / "scratch").rename(tmp_path / "final")  # as what was unpacked gets its name
    assert (tmp_path / "final/vmlinux").read_bytes() == vmlinux


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


# As the kernel's makefiles pack it (scripts/Makefile.lib, cmd_bzip2 to cmd_zstd22).
@pytest.mark.parametrize("command", ["gzip", "xz", "lzma", "bzip2", "lz4 -l", "lzop", "zstd"])
def test_a_kernel_that_unpacks_to_less_is_not_booted(command: str, tmp_path: Path) -> None:
    program, *options = command.split()
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    vmlinux = b"\x7fELF" + random.Random(1).randbytes(300_000)
    packed = subprocess.run([program, *options, "-c"], input=vmlinux, capture_output=True, check=True).stdout
    size = struct.pack("<I", len(vmlinux))  # which gzip has at its end anyway
    bad = tmp_path / "vmlinuz"
    bad.write_bytes(_bzimage(packed + size))
    assert image.vmlinux_of(bad) == vmlinux
    damages = [packed[:200_000], packed[:200_000] + packed]
    if program != "lz4":  # that format sums nothing
        damages.append(packed[:100_000] + bytes(50) + packed[100_050:])
    for damaged in damages:
        bad.write_bytes(_bzimage(damaged + size))
        with pytest.raises(FormatError, match="unpacks to 300004 bytes"):
            image.vmlinux_of(bad)


def test_a_driver_that_does_not_build_names_the_programs_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(tmp_path / "cache"))
    headers = tmp_path / "headers"
    headers.mkdir()
    (headers / "Makefile").write_text("modules:\n\tfalse\n")
    image_path = tmp_path / "vmlinux"
    image_path.touch()
    kernel = kernels.Kernel("6.1.0-test", image_path, None, headers)
    with pytest.raises(driver.DriverBuildError) as plain:
        driver.module_tree(kernel)
    assert "not installed" not in str(plain.value)
    (headers / ".kernelvariables").write_text("override CC = gcc-99\n")
    with pytest.raises(driver.DriverBuildError, match="not installed: gcc-99:\n"):
        driver.module_tree(kernel)


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


@pytest.mark.parametrize("length", [512, 1 << 17])
def test_the_boot_sector_of_a_disk_is_no_kernel(tmp_path: Path, length: int) -> None:
    disk = tmp_path / "disk.img"
    disk.write_bytes((bytes(510) + b"\x55\xaa").ljust(length, b"x"))
    with pytest.raises(FormatError, match="boot signature of a bzImage"):
        kernels.resolve(str(disk))


@pytest.mark.parametrize(
    ("at", "changed", "said"),
    [
        (4, b"\1", "a vmlinux of x86-64"),
        (18, b"\xb7", "a vmlinux of x86-64"),  # EM_AARCH64
        (32, b"\xff" * 8, "1 program headers"),
    ],
)
def test_the_headers_of_a_vmlinux_are_looked_at(tmp_path: Path, at: int, changed: bytes, said: str) -> None:
    header = bytearray(struct.pack("<4sBBB9xHHIQQQIHHH6x", b"\x7fELF", 2, 1, 1, 2, 62, 1, 0, 64, 0, 0, 64, 56, 1))
    vmlinux = tmp_path / "vmlinux"
    vmlinux.write_bytes(header + bytes(56))
    image.check(vmlinux)
    header[at : at + len(changed)] = changed
    vmlinux.write_bytes(header + bytes(56))
    with pytest.raises(FormatError, match=said):
        image.check(vmlinux)


def test_a_kernel_folder_must_have_one_image(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"0 boot/vmlinuz"):
        kernels.resolve(f"{tmp_path}/")


def test_a_build_tree_is_a_kernel(tmp_path: Path) -> None:
    (tmp_path / "arch/x86/boot").mkdir(parents=True)
    (tmp_path / "arch/x86/boot/bzImage").write_bytes(_bzimage(b"", "7.0.0-mine"))
    (tmp_path / "include/config").mkdir(parents=True)
    configured = tmp_path / "include/config/kernel.release"
    configured.write_text("7.0.0-mine\n")
    kernel = kernels.resolve(str(tmp_path))
    assert (kernel.release, kernel.modules, kernel.build) == ("7.0.0-mine", None, tmp_path)
    configured.write_text("7.0.0-next\n")
    with pytest.raises(InputError, match=r"bzImage of 7\.0\.0-mine, and is configured as 7\.0\.0-next"):
        kernels.resolve(str(tmp_path))
    configured.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"bzImage of 7\.0\.0-mine"):
        kernels.resolve(str(tmp_path))
    configured.unlink()
    with pytest.raises(InputError, match=r"has no include/config/kernel\.release .*make bzImage modules"):
        kernels.resolve(str(tmp_path))


def test_a_folder_s_kernel_is_the_image_s_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/vmlinuz-mine").write_bytes(_bzimage(b"", "7.0.0-mine"))
    modules = tmp_path / "lib/modules/7.0.0-mine"
    modules.mkdir(parents=True)
    kernel = kernels.resolve(str(tmp_path))
    assert (kernel.release, kernel.modules) == ("7.0.0-mine", modules)


def test_a_suite_is_its_own_kernel_not_another_that_came_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bookworm-security has 6.1, which it is named after, and 6.12."""
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(tmp_path))
    own, other = (
        store.Kernel(release, Path("x"), None, None, suite="bookworm-security")
        for release in ("6.1.0-56-amd64", "6.12.117+deb12-amd64")
    )
    monkeypatch.setattr(store, "installed", lambda: [own, other])
    monkeypatch.setattr(store, "_load", lambda _: own)
    monkeypatch.setattr(store, "_find", lambda spec: (debian.Suite(spec), own.release))
    assert kernels.resolve("bookworm-security") == own
    monkeypatch.setattr(store, "_find", lambda _: pytest.fail("the mirror was asked again"))
    assert kernels.resolve("bookworm-security") == own
    assert kernels.resolve("6") == other


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

    archive = initramfs.cpio(
        [
            initramfs.Entry("a", 0o040755),
            initramfs.Entry("a/b", 0o100644, b"hello", 1_700_000_000),
            initramfs.Entry("c", 0o100755, b"x" * 4097),
            initramfs.Entry("d", 0o120777, b"a/b"),
        ]
    )
    listed = subprocess.run(["cpio", "-im", "--quiet"], input=archive, cwd=tmp_path, capture_output=True, check=True)
    assert listed.stderr == b""
    assert (tmp_path / "a/b").read_bytes() == b"hello"
    assert (tmp_path / "a/b").stat().st_mtime == 1_700_000_000
    assert (tmp_path / "c").stat().st_size == 4097
    assert (tmp_path / "d").readlink() == Path("a/b")


def test_a_mirror_of_one_s_own_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMPLEBLK_DEBIAN_MIRROR", "http://mirror.example/debian/")
    assert debian.mirror() == "http://mirror.example/debian"
    assert "http://mirror.example/debian-security bookworm-security" in debian.Suite("bookworm-security")._source_line()


def test_what_apt_says_is_in_the_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(tmp_path))
    monkeypatch.setenv("SAMPLEBLK_DEBIAN_MIRROR", f"file:{tmp_path}/no-mirror")
    for _ in range(2):
        with pytest.raises(debian.PackageError, match="no-mirror"):
            debian.Suite("bookworm").update()


def test_a_mirror_that_does_not_answer_is_not_an_empty_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """apt-get update calls that a warning, and ends with 0."""
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(tmp_path))
    options = debian.Suite._options
    monkeypatch.setattr(debian.Suite, "_options", lambda suite: [*options(suite), "-o", "Acquire::Retries=0"])
    suite = debian.Suite("bookworm")
    suite.root.mkdir(parents=True)
    (suite.root / "sources.list").write_text("of a mirror that did answer")
    (suite.root / "updated").touch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        monkeypatch.setenv("SAMPLEBLK_DEBIAN_MIRROR", f"http://127.0.0.1:{taken.getsockname()[1]}/debian")
        for _ in range(2):
            with pytest.raises(debian.PackageError, match=r"127\.0\.0\.1"):
                suite.update()


def test_a_fetch_that_is_killed_leaves_no_apt_that_has_the_next_one_fail(tmp_path: Path) -> None:
    """apt-get holds a lock, and would work on for nobody."""
    pid = tmp_path / "pid"
    code = "import sys; from sampleblk_lab.kernels import debian; debian.run(['sh', '-c', sys.argv[1]])"
    script = f"echo $$ >'{pid}.new'; mv '{pid}.new' '{pid}'; exec sleep 60"
    with subprocess.Popen([sys.executable, "-c", code, script]) as process:
        while not pid.exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    its = Path("/proc", pid.read_text().strip(), "cmdline")
    for _ in range(1000):
        if not its.exists() or its.read_bytes() == b"":
            break
        time.sleep(0.01)
    else:
        pytest.fail("it works on")


def test_lists_that_name_what_is_gone_are_asked_for_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A package that was replaced since: for a day nothing could be fetched from the suite."""
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(tmp_path))
    suite = debian.Suite("bookworm-security")
    monkeypatch.setattr(suite, "update", lambda: None)

    def gone(*_: object, **__: object) -> str:
        raise debian.PackageError("404 Not Found")

    monkeypatch.setattr(debian, "run", gone)
    (suite.root / "cache").mkdir(parents=True)
    (suite.root / "updated").touch()
    with pytest.raises(debian.PackageError, match="404"):
        suite.unpack(["linux-image-6.1"], tmp_path / "into")
    assert not (suite.root / "updated").exists()


def test_lists_that_are_gone_or_of_a_clock_that_was_ahead_are_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(tmp_path))
    monkeypatch.setenv("SAMPLEBLK_DEBIAN_MIRROR", "file:/none")
    suite = debian.Suite("bookworm")
    listed = suite.root / "lists/none_Packages"
    asked = []

    def update(*_: object) -> str:
        asked.append(1)
        listed.touch()
        return ""

    monkeypatch.setattr(debian, "run", update)
    suite.update()
    suite.update()
    assert len(asked) == 1
    listed.unlink()
    suite.update()
    assert len(asked) == 2
    os.utime(suite.root / "updated", (time.time() + 1e6,) * 2)
    suite.update()
    assert len(asked) == 3


def test_the_lists_of_a_suite_are_read_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where apt is told to keep nothing, as in containers: a kernel of no suite took half a minute to be named."""
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(tmp_path))
    (tmp_path / "apt.conf").write_text('Dir::Cache::pkgcache "";\nDir::Cache::srcpkgcache "";\n')
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    suite = debian.Suite("bookworm")
    for folder in ("state", "lists/partial", "cache"):
        (suite.root / folder).mkdir(parents=True)
    (suite.root / "sources.list").write_text(suite._source_line())
    for name in ("status", "updated", "lists/none_Packages"):
        (suite.root / name).touch()
    assert suite.names("linux-.*") == []
    assert (suite.root / "cache/pkgcache.bin").exists()


def test_a_kernel_that_is_being_fetched_is_not_damaged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(tmp_path))
    for name in (".6.1.0-9-amd64.a1b2c3d4", "6.1.0-8-amd64"):
        (tmp_path / "kernels" / name).mkdir(parents=True)
    assert [path.name for path in store.damaged()] == ["6.1.0-8-amd64"]


def test_the_kernel_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_BOOT", tmp_path / "boot")
    monkeypatch.setattr(store, "_MODULES", tmp_path / "lib/modules")
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release="6.1.0-test"))
    with pytest.raises(UnsupportedError, match=r"neither .*/boot/vmlinuz-6.1.0-test nor .*/6.1.0-test/vmlinuz"):
        kernels.resolve("host")
    (tmp_path / "boot").mkdir()
    modules = tmp_path / "lib/modules/6.1.0-test"
    (modules / "build").mkdir(parents=True)
    (modules / "modules.dep").touch()
    image_of_it = tmp_path / "boot/vmlinuz-6.1.0-test"
    image_of_it.write_bytes(_bzimage(gzip.compress(b"\x7fELF" + bytes(1000))))
    found = kernels.resolve("host")
    assert (found.release, found.image, found.modules, found.build) == (
        *("6.1.0-test", image_of_it, modules, modules / "build"),
    )


# --- configurations


def test_the_fragment_has_what_a_guest_was_seen_to_boot_with() -> None:
    """The debug kernel is made from nothing by its list, and boots."""
    booted = (Path(__file__).parents[1] / "module/debug/config").read_text()
    needed = config.fragment(config.missing()).split("# for the driver")[0].splitlines()[1:]
    assert "CONFIG_9P_FS=y" in needed
    assert "CONFIG_SERIAL_8250=y" in needed
    assert [line for line in needed if line not in booted.splitlines()] == []


def test_a_configuration_is_told_what_it_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    everything = config.fragment(config.missing())
    assert config.missing(everything) == {}
    assert config.missing(everything.replace("CONFIG_XFS_FS=y", "CONFIG_XFS_FS=m")) == {}
    assert config.missing(everything.replace("CONFIG_XFS_FS=y", "# CONFIG_XFS_FS is not set")) == {
        "file systems": ["CONFIG_XFS_FS"]
    }
    assert config.missing(everything + "# CONFIG_XFS_FS is not set\n") == {"file systems": ["CONFIG_XFS_FS"]}
    assert config.missing("# CONFIG_XFS_FS is not set\n" + everything + "# CONFIG_XFS_FS=n\n") == {}
    # As Kconfig reads them, by the first letter; the console goes with a module of its driver.
    assert config.missing(everything.replace("\n", " \t\n").replace("CONFIG_9P_FS=y", "CONFIG_9P_FS=yes")) == {}
    assert config.missing(everything + "# CONFIG_XFS_FS is not set \n") == {"file systems": ["CONFIG_XFS_FS"]}
    assert config.missing(everything + "CONFIG_SERIAL_8250=m\n") == {"a virtual machine": ["CONFIG_SERIAL_8250"]}
    own = tmp_path / "own.config"
    own.write_text(everything.replace("\n", "\r\n"))
    assert main(["kernel", "config", str(own)]) == 0
    own.write_text(everything.replace("CONFIG_9P_FS=y\n", "CONFIG_9P_FS_X=y\n"))
    assert main(["kernel", "config", str(own)]) == 1
    assert capsys.readouterr().out == "# for a virtual machine\nCONFIG_9P_FS=y\n"
    own.write_text(everything)
    assert main(["kernel", "config", str(own)]) == 0
    assert main(["kernel", "config"]) == 0
    assert capsys.readouterr().out == everything
    own.write_bytes(gzip.compress(everything.replace("CONFIG_9P_FS=y\n", "").encode()))  # as /proc/config.gz
    assert main(["kernel", "config", str(own)]) == 1
    assert capsys.readouterr().out == "# for a virtual machine\nCONFIG_9P_FS=y\n"
    own.write_bytes(gzip.compress(f"{everything}# CONFIG_XFS_FS is not set\n".replace("\n", "\r\n").encode()))
    assert main(["kernel", "config", str(own)]) == 1
    assert capsys.readouterr().out == "# for file systems\nCONFIG_XFS_FS=y\n"
    own.write_text(f"{everything}# CONFIG_XFS_FS is not set\n", newline="\r\n")
    assert main(["kernel", "config", str(own)]) == 1
    assert capsys.readouterr().out == "# for file systems\nCONFIG_XFS_FS=y\n"
    own.write_bytes(gzip.compress(everything.encode())[:20] + bytes(20))
    assert main(["kernel", "config", str(own)]) == 2
    capsys.readouterr()
    own.write_bytes(b"\x7fELF")
    assert main(["kernel", "config", str(own)]) == 2
    said = capsys.readouterr()
    assert (said.out, "own.config: at byte 0: expected a vmlinux" in said.err) == ("", True)


def test_without_modules_an_option_that_is_one_is_lacking(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the command that the refusal names."""
    (tmp_path / "arch/x86/boot").mkdir(parents=True)
    (tmp_path / "arch/x86/boot/bzImage").write_bytes(_bzimage(bytes(16)))
    (tmp_path / "include/config").mkdir(parents=True)
    (tmp_path / "include/config/kernel.release").write_text("6.1.0-test\n")
    everything = config.fragment(config.missing())
    (tmp_path / ".config").write_text(everything.replace("CONFIG_OVERLAY_FS=y", "CONFIG_OVERLAY_FS=m"))
    tree = kernels.resolve(str(tmp_path))
    with pytest.raises(UnsupportedError, match="does not have built in what a VM needs: CONFIG_OVERLAY_FS;") as caught:
        store.check(tree)
    assert f"`sampleblk-lab kernel config {tmp_path}` prints" in caught.value.remedy
    assert main(["kernel", "config", str(tmp_path)]) == 1
    assert capsys.readouterr().out == "# for a virtual machine\nCONFIG_OVERLAY_FS=y\n"
    (tmp_path / "lib/modules/6.1.0-test").mkdir(parents=True)
    assert main(["kernel", "config", str(tmp_path)]) == 0


def test_debian_s_kernels_have_what_experiments_want(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel", "config", "6.1"]) == 0, capsys.readouterr().out


def test_a_kernel_and_its_driver_are_had_before_anything_is_compiled(tmp_path: Path) -> None:
    """As `make demo` does, beside the core's build."""
    code = (
        "import runpy, sys; sys.modules['sampleblk_lab._core'] = sys.modules['numpy'] = None; "
        "sys.argv[1:] = ['6.1']; runpy.run_module('sampleblk_lab.kernels', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr


def test_drivers_that_a_vm_may_load_stay_however_many_are_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = kernels.resolve("6.1")
    source = tmp_path / "module"
    source.mkdir()
    monkeypatch.setenv("SAMPLEBLK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(driver, "module_source", lambda: source)
    monkeypatch.setattr(driver, "_KEPT", 2)

    def built(number: int) -> Path:
        (source / "Makefile").write_text(f"all:\n\techo {number} >sampleblk.ko\n")
        tree = driver.module_tree(kernel)
        assert tree is not None
        return tree / "updates/sampleblk.ko"

    first = built(0)
    vm = VM(kernel=kernel, warm=False, memory_mib=512)
    others = [built(number) for number in range(1, 4)]
    assert [path.exists() for path in (first, *others)] == [False, False, True, True]
    (source / "Makefile").write_text("all:\n\techo 0 >sampleblk.ko\n")
    with vm:
        assert first.exists()  # built again
        others = [built(number) for number in range(4, 8)]
        assert [path.exists() for path in (first, *others)] == [True, False, False, True, True]
        said = vm.run(["find", "/lib/modules", "-name", "sampleblk.ko"]).stdout
        assert said == f"/lib/modules/{kernel.release}/updates/sampleblk.ko\n".encode()
    built(8)
    assert not first.exists()


def test_what_was_made_in_the_driver_s_folder_is_no_source_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headers that were made for the kernel of one build are not for the next one's."""
    folder = copy_sources(Path(__file__).parents[1] / "module", tmp_path)
    monkeypatch.setattr(driver, "module_source", lambda: folder)
    before = driver.source_identity()
    for name in ("generated/config.h", "core/cache.o", ".git/index", "tests/new.c"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("of another kernel")
    assert driver.source_identity() == before
    (folder / "core/new.h").write_text("")
    assert driver.source_identity() != before
