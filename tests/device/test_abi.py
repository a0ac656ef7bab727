# SPDX-License-Identifier: MIT
"""The ABI's page, its header, the kernel's table of calls and the classes above it say the same."""

import importlib.util
import re
import subprocess
from pathlib import Path

import sampleblk_lab as lab
from sampleblk_lab._native import core

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/abi.md").read_text()
HEADER = (ROOT / "module/include/uapi/linux/sampleblk.h").read_text()
CONTROL = (ROOT / "module/control/control.c").read_text()

Calls = dict[str, tuple[int, str]]


def header_calls() -> Calls:
    found = re.findall(r"#define SAMPLEBLK_IOC_(\w+) _IO\w+\(SAMPLEBLK_IOC_MAGIC, (0x\w+), struct (\w+)\)", HEADER)
    return {name: (int(number, 0), structure) for name, number, structure in found}


def page_rows() -> list[list[str]]:
    table = PAGE.split("## Calls")[1].split("##")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")
    ]
    return rows[2:]


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_call_of_the_header_is_on_the_page() -> None:
    listed: Calls = {}
    for numbers, names, structures, *_ in page_rows():
        for number, name in zip(numbers.split(","), words(names), strict=True):
            listed[name] = (int(number), words(structures)[0])
    assert listed == header_calls()
    assert len(listed) > 10


def test_what_the_page_says_changes_something_needs_the_right() -> None:
    kernel = dict(re.findall(r"\{ SAMPLEBLK_IOC_(\w+), (true|false),", CONTROL))
    assert kernel.keys() == header_calls().keys()
    for numbers, names, _, changes, *_ in page_rows():
        for number, name in zip(numbers.split(","), words(names), strict=True):
            # Calls that both ask and change look at the right themselves; test_device_basic.py tries them.
            by_itself = changes == "yes" or changes == number.strip()
            assert (kernel[name] == "true") == by_itself, name


def test_the_classes_have_what_the_page_names() -> None:
    classes = (lab.Device, core.DeviceControl, core.DeviceJournal)
    for *_, methods in page_rows():
        for word in words(methods):
            name = word.split("(")[0]
            if name.startswith("…"):
                name = f"snapshot{name[1:]}"
            if name == "Device":
                continue
            owner: object = lab if name.startswith("lab.") else None
            name = name.removeprefix("lab.")
            there = hasattr(owner, name) if owner else any(hasattr(each, name) for each in classes)
            assert there, f"{word} is on the page only"


def test_every_method_of_the_core_is_on_the_page() -> None:
    public = {name for name in vars(core.DeviceControl) if not name.startswith("_")} - {"close", "snapshot_take_at"}
    named = {word.split("(")[0].replace("…", "snapshot") for *_, methods in page_rows() for word in words(methods)}
    assert public <= named


def test_every_single_value_of_sysfs_is_on_the_page() -> None:
    source = (ROOT / "module/control/sysfs.c").read_text()
    writable = set(re.findall(r"^SBLK_(?:TUNE|LIMIT|SETTING|STORE|LATENCY)\((\w+)", source, re.MULTILINE))
    assert {"queues", "powered", "iops", "read_latency_ns", "journal_bytes"} <= writable
    state = set(re.findall(r"^SBLK_(?:STATE|JOURNAL)\((\w+)", source, re.MULTILINE))
    assert {"allocated_bytes", "journal_overflow"} <= state
    section = PAGE.split("## sysfs")[1]
    assert writable | state <= set(words(section))
    # What exists is also made.
    listed = set(re.findall(r"&dev_attr_(\w+)\.attr", source))
    assert writable | state <= listed


def test_every_tracepoint_is_on_the_page_and_is_hit_somewhere() -> None:
    module = ROOT / "module"
    header = (module / "block/trace.h").read_text()
    points = set(re.findall(r"(?:TRACE_EVENT|DEFINE_EVENT(?:_PRINT)?)\((?:sampleblk_cmd, )?(sampleblk_\w+),", header))
    points.discard("sampleblk_cmd")
    assert {"sampleblk_queue", "sampleblk_flush"} <= points
    braces = re.search(r"sampleblk:sampleblk_\{([\w,]+)\}", PAGE)
    assert braces
    assert {f"sampleblk_{name}" for name in braces[1].split(",")} == points
    code = "".join(path.read_text() for path in module.glob("*/*.c"))
    assert {point for point in points if f"trace_{point}(" not in code} == set()


def test_the_calls_that_the_cases_in_the_vm_make_are_laid_out_as_the_compiler_does(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("abi", ROOT / "tests/vm/abi.py")
    assert spec
    assert spec.loader
    abi = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(abi)
    structures = {name: structure for name, (_, structure) in header_calls().items()}
    assert [call.name for call in abi.CALLS] == list(structures)
    expected, lines = [], []
    for call in abi.CALLS:
        request = f"SAMPLEBLK_IOC_{call.name}"
        expected.append(f"{call.name} {call.request}")
        lines.append(f'printf("{call.name} %lu\\n", (unsigned long){request});')
        for name, offset, size in call.fields:
            structure = f"struct {structures[call.name]}"
            expected.append(f"{call.name}.{name} {offset} {size}")
            lines.append(
                f'printf("{call.name}.{name} %zu %zu\\n", offsetof({structure}, {name}), '
                f"sizeof((({structure} *)0)->{name}));"
            )
    includes = "#include <stddef.h>\n#include <stdio.h>\n#include <linux/sampleblk.h>\n"
    (tmp_path / "layout.c").write_text(f"{includes}int main(void)\n{{\n{chr(10).join(lines)}\n}}\n")
    subprocess.run(
        ["cc", "-I", str(ROOT / "module/include/uapi"), "-o", str(tmp_path / "layout"), str(tmp_path / "layout.c")],
        check=True,
    )
    told = subprocess.run([str(tmp_path / "layout")], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines() == expected
