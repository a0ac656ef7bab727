# SPDX-License-Identifier: MIT
"""Kernels that change, caches that are damaged, full, linked to or not ours to write: healed, or one sentence."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from sampleblk_lab import kernels
from sampleblk_lab.cli.main import main
from sampleblk_lab.errors import FormatError, UnsupportedError
from sampleblk_lab.kernels import Kernel, config, driver, image, store
from sampleblk_lab.paths import CacheError, cache_root, write_atomically
from sampleblk_lab.vm import VM, BootError, GuestLostError, accel, qemu, template
from sampleblk_lab.vm.contents import initramfs
from support import RunsInVM


def _layout(folder: Path, *releases: Kernel) -> Path:
    """boot/vmlinuz of the first, with the modules of all beside it, and without what these were built with."""
    (folder / "boot").mkdir()
    (folder / "lib/modules").mkdir(parents=True)
    for kernel in releases:
        assert kernel.modules is not None
        modules = folder / "lib/modules" / kernel.release
        modules.mkdir()
        for entry in kernel.modules.iterdir():
            if entry.name not in ("build", "source"):
                (modules / entry.name).symlink_to(entry)
    shutil.copy2(releases[0].image, folder / "boot/vmlinuz")
    return folder / "boot/vmlinuz"


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache with the default kernel, whose image may be damaged; fetching it again copies it."""
    kernel, real = kernels.resolve("6.1"), cache_root()
    cache = tmp_path / "cache"

    def provide() -> Kernel:
        folder = cache / "kernels" / kernel.release
        folder.mkdir(parents=True, exist_ok=True)
        for entry in kernel.image.parent.iterdir():
            if entry.name in ("vmlinux", "kernel.json"):
                shutil.copy2(entry, folder)
            elif not (folder / entry.name).exists():
                (folder / entry.name).symlink_to(entry)
        found = store._load(folder)
        assert found is not None
        return found

    monkeypatch.setenv("SAMPLEBLK_CACHE", str(cache))
    monkeypatch.setenv("SAMPLEBLK_BACKGROUND", "0")
    monkeypatch.setenv("SAMPLEBLK_ACCEL", os.environ.get("SAMPLEBLK_ACCEL", "tcg"))
    fetched: list[str | None] = []
    monkeypatch.setattr(store, "fetch", lambda spec=None: (fetched.append(spec), provide())[1])
    provide()
    if (real / "qemu").exists():
        (cache / "qemu").symlink_to(real / "qemu")
    yield cache
    monkeypatch.undo()


def _image(cache: Path) -> Path:
    [folder] = (cache / "kernels").iterdir()
    return folder / "vmlinux"


# --- identity


def test_an_image_that_was_replaced_is_another_kernel(tmp_path: Path) -> None:
    """Also by one of the same size and time, as `cp -p` and `touch -r` leave them."""
    path = tmp_path / "vmlinuz"
    path.write_bytes(b"one")
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    one = Kernel("1.0", path, None, None)
    before = one.identity
    assert one.identity == before
    path.write_bytes(b"two")
    os.utime(path, ns=times)
    assert one.identity != before


@pytest.mark.parametrize("changed", [".config", "Module.symvers", "include/config/auto.conf", "modules.dep"])
def test_the_driver_is_built_again_when_its_kernel_was(tmp_path: Path, changed: str) -> None:
    build, modules, path = tmp_path / "build", tmp_path / "lib/modules/1.0", tmp_path / "vmlinuz"
    (build / "include/config").mkdir(parents=True)
    modules.mkdir(parents=True)
    for name in (
        build / ".config",
        build / "Module.symvers",
        build / "include/config/auto.conf",
        modules / "modules.dep",
        path,
    ):
        name.write_text("one")
    kernel = Kernel("1.0", path, modules, build)
    source = driver.module_source()
    before = driver._key(source, kernel)
    assert driver._key(source, kernel) == before
    target = (modules if changed == "modules.dep" else build) / changed
    target.write_text("two")
    assert driver._key(source, kernel) != before


def test_a_new_image_at_the_same_path_is_booted(tmp_path: Path, sampleblk_python: RunsInVM) -> None:
    old, new = kernels.resolve("6.1"), kernels.resolve("6.12")
    path = _layout(tmp_path, old, new)

    def release() -> str:
        code = "import os; print(os.uname().release)"
        done = sampleblk_python("--kernel", str(path), "--memory", "512M", "-c", code)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode().strip()

    assert release() == old.release
    assert release() == old.release  # from its template
    shutil.copy2(new.image, path)
    assert release() == new.release


def test_modules_installed_again_are_another_initramfs(tmp_path: Path) -> None:
    kernel = kernels.resolve("6.1")
    assert kernel.modules is not None
    modules = tmp_path / kernel.release
    shutil.copytree(kernel.modules, modules, symlinks=True)
    moved = Kernel(kernel.release, kernel.image, modules, None)
    first = initramfs.build(moved)
    assert initramfs.build(moved) == first
    [nine_p] = modules.rglob("9p.ko*")
    nine_p.write_bytes(nine_p.read_bytes())
    assert initramfs.build(moved) != first


# --- damage


def test_a_truncated_kernel_is_fetched_again(own_cache: Path) -> None:
    whole = _image(own_cache).stat().st_size
    os.truncate(_image(own_cache), whole // 2)
    assert kernels.installed() == []
    with VM(driver=False, memory_mib=512) as vm:
        assert vm.run(["true"]).returncode == 0
    assert _image(own_cache).stat().st_size == whole


def test_a_kernel_with_other_bytes_is_fetched_again(own_cache: Path) -> None:
    """As long as it was, so that only the failing boot tells."""
    path = _image(own_cache)
    with path.open("r+b") as file:
        head = file.read(64)
        entry, programs = struct.unpack_from("<QQ", head, 24)
        file.seek(programs)
        _, _, offset, virtual, physical = struct.unpack("<IIQQQ", file.read(32))
        del virtual, entry
        assert physical
        file.seek(offset)
        file.write(bytes(8 << 20))  # what runs first, so that the processor gives up at once
    with VM(driver=False, memory_mib=512) as vm:
        assert vm.run(["true"]).returncode == 0


@pytest.mark.parametrize("text", ["", "{", '{"release": "6.1"}', "[]"])
def test_a_damaged_kernel_json_is_fetched_again(own_cache: Path, text: str) -> None:
    (_image(own_cache).parent / "kernel.json").write_text(text)
    assert kernels.installed() == []
    assert json.loads((kernels.resolve("6.1").image.parent / "kernel.json").read_text())["image_bytes"]


@pytest.mark.parametrize("key", ["suite", "version", "tools", "image_bytes"])
def test_a_kernel_json_that_lacks_something_is_fetched_again(own_cache: Path, key: str) -> None:
    path = _image(own_cache).parent / "kernel.json"
    about = json.loads(path.read_text())
    for other in ({name: value for name, value in about.items() if name != key}, {**about, key: ["?"]}):
        path.write_text(json.dumps(other))
        if key not in other or key in ("tools", "image_bytes"):
            assert kernels.installed() == []
            assert store.damaged() == [path.parent]
        assert main(["kernel", "list"]) == 0
        kernels.resolve("6.1")


@pytest.mark.parametrize("name", ["lib", "usr"])
def test_a_kernel_that_lost_its_modules_or_headers_is_fetched_again(own_cache: Path, name: str) -> None:
    (_image(own_cache).parent / name).unlink()
    assert store.damaged() == [_image(own_cache).parent]
    kernel = kernels.resolve("6.1")
    assert kernel.modules is not None
    assert kernel.build is not None
    assert (kernel.modules / "modules.dep").exists()
    assert (kernel.build / "Makefile").exists()


def test_a_kernel_whose_compiler_is_lost_is_fetched_again(own_cache: Path) -> None:
    path = _image(own_cache).parent / "kernel.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tools": "tools/lost/usr/bin"}))
    assert kernels.installed() == []
    assert kernels.resolve("6.1").tools is None


def test_what_is_no_text_in_the_cache_is_asked_anew(own_cache: Path) -> None:
    garbage = b"\xff\xfe\0"
    found = qemu.find()
    noted = own_cache / "kernels/bookworm.release"
    noted.write_bytes(garbage)
    assert kernels.resolve("bookworm").release == kernels.resolve("6.1").release
    noted.unlink()
    (own_cache / "qemu").unlink(missing_ok=True)
    (own_cache / "qemu").mkdir()
    qemu._version(found.program)
    [version] = (own_cache / "qemu").iterdir()
    version.write_bytes(garbage)
    assert qemu._version(found.program) == found.version
    assert version.read_bytes() != garbage
    (own_cache / "qemu/some.refused").write_bytes(garbage)
    assert qemu.refusal("some")


@pytest.mark.parametrize(
    "changed", [{"accel": "xyz"}, {"accel": 7}, {"when": "x"}, {"tries": "x"}, {"tries": 1 << 20}, {"when": None}]
)
def test_a_verdict_on_kvm_that_makes_no_sense_is_none(own_cache: Path, changed: dict[str, object]) -> None:
    del own_cache
    found = qemu.find()
    write_atomically(accel._path(found), b"")
    about = {"accel": "tcg", "why": "no guest boots", "final": False, "when": 1.0, "tries": 1}
    accel._path(found).write_text(json.dumps(about))
    assert accel.known(found) is not None
    accel._path(found).write_text(json.dumps({**about, **changed}))
    assert accel.known(found) is None


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("keep", [0, 1000, -1])
def test_a_damaged_initramfs_is_built_again(keep: int) -> None:
    kernel = kernels.resolve("6.1")
    path = initramfs.build(kernel)
    content = path.read_bytes()
    path.write_bytes(content[:keep] if keep >= 0 else content[:5000] + b"?" + content[5001:])
    again = initramfs.whole(path, kernel)
    assert again.read_bytes() == content
    assert initramfs.whole(again, kernel) == again == initramfs.build(kernel)


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("warm", [False, True])
def test_a_vm_starts_with_a_damaged_initramfs(warm: bool) -> None:
    vm = VM(driver=False, memory_mib=512, warm=warm)
    if warm:
        vm.make_template()
    initramfs.build(vm.kernel).write_bytes(b"")
    with vm:
        assert vm.run(["echo", "up"]).stdout == b"up\n"


def test_a_damaged_module_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for begin, suffix in ((b"\xfd7zXZ\0", "xz"), (b"\x1f\x8b", "gz"), (b"\x28\xb5\x2f\xfd", "zst")):
        module = tmp_path / f"x.ko.{suffix}"
        module.write_bytes(begin + b" and no more")
        with pytest.raises(FormatError, match=rf"x\.ko\.{suffix}"):
            initramfs._unpacked(module)
    with monkeypatch.context() as patched:
        patched.setenv("PATH", str(tmp_path))
        with pytest.raises(UnsupportedError, match=r"x\.ko\.zst.*apt-get install zstd"):
            initramfs._unpacked(module)
    plain = tmp_path / "x.ko"
    plain.write_bytes(b"\x7fELF" + bytes(36) + struct.pack("<Q", 1000) + bytes(12) + struct.pack("<HH", 3, 0))
    with pytest.raises(FormatError, match="at least 1192 bytes"):
        initramfs._unpacked(plain)


def test_a_driver_that_was_damaged_is_built_again(tmp_path: Path) -> None:
    target = tmp_path / "1.0-key"
    (target / "lib").mkdir(parents=True)
    (target / "lib/x.ko").write_bytes(b"12345")
    assert not driver._whole(target)
    (target / "sha256").write_text(f"lib/x.ko {hashlib.sha256(b'12345').hexdigest()}\n")
    assert driver._whole(target)
    for damaged in (b"12", b"12045"):
        (target / "lib/x.ko").write_bytes(damaged)
        assert not driver._whole(target)


# --- no place to write


def test_a_cache_that_cannot_be_written_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMPLEBLK_CACHE", "/sys/kernel/no-cache-here")
    with pytest.raises(CacheError, match=r"cannot write the cache: /sys/kernel/no-cache-here.*SAMPLEBLK_CACHE"):
        write_atomically(cache_root() / "x", b"")
    with pytest.raises(CacheError, match="/sys/kernel/no-cache-here"):
        kernels.fetch("6.1")


def test_the_command_says_so_too(sampleblk_python: RunsInVM) -> None:
    env = {**os.environ, "SAMPLEBLK_CACHE": "/sys/kernel/no-cache-here"}
    done = sampleblk_python("-c", "pass", env=env)
    assert done.returncode == 125
    said = done.stderr.decode().strip().splitlines()
    assert len(said) == 1
    assert "/sys/kernel/no-cache-here" in said[0]
    assert "set SAMPLEBLK_CACHE" in said[0]


def test_no_room_for_the_state_is_said_and_the_vm_runs(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(template, "cache_root", lambda: small_disk)
    with VM(driver=False, memory_mib=512) as vm:
        assert vm.run(["echo", "up"]).stdout == b"up\n"
    said = capsys.readouterr().err
    assert "the booted machine was not saved" in said
    assert f"MiB free in {small_disk}" in said
    assert [path for path in small_disk.rglob("*") if path.is_file() and path.suffix != ".lock"] == []


def test_why_a_machine_was_not_saved_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the guest's kernel said is the error's, not the note's: whoever reads these lines takes it for theirs."""
    lost = GuestLostError("it ended", "[0.1] a\n[0.2] b")
    template.say_not_saved(template.Template(tmp_path / "one", 512, True), lost)
    assert capsys.readouterr().err.endswith("so the next start boots again: it ended\n")


# --- links


def test_a_cache_and_a_run_folder_behind_links_work(tmp_path: Path, sampleblk_python: RunsInVM) -> None:
    (tmp_path / "cache").symlink_to(cache_root())
    (tmp_path / "real").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "real")
    code = (
        "import os, pathlib, subprocess, sys\n"
        "subprocess.run(['modprobe', 'sampleblk'], check=True)\n"
        "pathlib.Path(sys.argv[1], 'result').write_text('kept')\n"
    )
    env = {**os.environ, "SAMPLEBLK_CACHE": str(tmp_path / "cache")}
    # What it would build for the cache at its own place is there: a path without links is the same one.
    done = sampleblk_python(
        "--run-dir", str(tmp_path / "runs"), "-c", code, str(tmp_path / "runs"), env=env, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "real/result").read_text() == "kept"


# --- kernels of the user's own


def test_an_image_without_modules_says_what_it_lacks(tmp_path: Path) -> None:
    kernel = kernels.resolve("6.1")
    bare = tmp_path / "vmlinuz"
    shutil.copy2(kernel.image, bare)
    with pytest.raises(BootError) as caught, VM(kernel=str(bare), warm=False):
        pass
    assert "no virtio console driver (CONFIG_VIRTIO_CONSOLE)" in caught.value.message
    assert f"lib/modules/{kernel.release}" in caught.value.message
    # With its configuration beside it nothing has to be booted to know.
    [text] = kernel.image.parent.glob("boot/config-*")
    shutil.copy2(text, tmp_path / f"config-{kernel.release}")
    with pytest.raises(UnsupportedError, match=r"CONFIG_VIRTIO_PCI.*CONFIG_9P_FS.*CONFIG_OVERLAY_FS"):
        VM(kernel=str(bare))


@pytest.mark.parametrize(
    ("lost", "refused", "has_tree"),
    [
        ("CONFIG_SERIAL_8250_CONSOLE=y", "CONFIG_SERIAL_8250_CONSOLE", False),
        ("CONFIG_OVERLAY_FS=m", "CONFIG_OVERLAY_FS", False),
        ("CONFIG_OVERLAY_FS=m", "CONFIG_OVERLAY_FS", True),
        ("CONFIG_XFS_FS=m", "", False),
    ],
)
def test_a_kernel_with_modules_whose_configuration_lacks_something_is_refused(
    tmp_path: Path, lost: str, refused: str, has_tree: bool
) -> None:
    """At once, with the options and the command that gives the fragment; a tree may have been configured anew."""
    kernel = kernels.resolve("6.1")
    [text] = kernel.image.parent.glob("boot/config-*")
    path = _layout(tmp_path, kernel)
    if has_tree:
        assert kernel.build is not None
        (tmp_path / "lib/modules" / kernel.release / "build").symlink_to(kernel.build)
    own = path.with_name(f"config-{kernel.release}")
    assert f"\n{lost}\n" in text.read_text()
    own.write_text(text.read_text().replace(f"\n{lost}\n", "\n"))
    mine = kernels.resolve(str(path))
    assert mine.modules is not None
    if not refused:
        store.check(mine)
        return
    with pytest.raises(UnsupportedError) as caught:
        VM(kernel=str(path))
    assert f"does not have what a VM needs: {refused};" in str(caught.value)
    assert f"`sampleblk-lab kernel config {own}` prints all that it should have" in caught.value.remedy
    assert refused in config.fragment(config.missing(own.read_text()))


def test_the_kernels_of_the_cache_have_what_the_list_asks_for() -> None:
    for kernel in kernels.installed():
        for path in kernel.configurations:
            assert not path.is_file() or config.lacks(path.read_text(), modules=True) == [], path
        assert config.find(kernel.configurations) is not None, kernel.release
    assert config.lacks("CONFIG_9P_FS=m\n", modules=True)[-1] == "CONFIG_OVERLAY_FS"
    assert "CONFIG_9P_FS" in config.lacks("CONFIG_9P_FS=m\n", modules=False)


def test_an_image_that_is_cut_off_is_told_by_its_headers(tmp_path: Path) -> None:
    kernel = kernels.resolve("6.1")
    [packed] = kernel.image.parent.glob("boot/vmlinuz-*")
    for whole in (kernel.image, packed):
        image.check(whole)
        cut = tmp_path / whole.name
        with whole.open("rb") as file:
            cut.write_bytes(file.read(whole.stat().st_size * 3 // 4))
        with pytest.raises(FormatError, match="cut off"):
            VM(kernel=str(cut))
        cut.write_bytes(whole.read_bytes()[:100])
        with pytest.raises(FormatError):
            VM(kernel=str(cut))
