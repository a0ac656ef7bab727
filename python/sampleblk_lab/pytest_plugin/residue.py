# SPDX-License-Identifier: MIT
"""What a test left in the guest's kernel: a taint, what it made there, settings that it changed, processes.

Of the settings those are looked at that experiments with storage have a reason to change; files are not, nor what has
no state of its own: a module of the kernel's own is loaded on demand, and what it made is seen.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import re
import signal
import time
from typing import TYPE_CHECKING

from sampleblk_lab import proc
from sampleblk_lab._native import core

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Documentation/admin-guide/tainted-kernels.rst: an out-of-tree and an unsigned module are our driver.
_OF_OUR_DRIVER = (1 << 12) | (1 << 13)
_TAINTS = {
    0: "a proprietary module",
    1: "a module was forced in",
    4: "a machine check",
    5: "a bad page",
    7: "an oops",
    9: "a warning",
    10: "a staging driver",
    14: "a soft lockup",
    15: "a live patch",
    18: "a test of the kernel's own",
}

# After these the kernel is not what it was, whoever meant to do it.
_DAMAGE = (4, 5, 7, 9, 14)

_DRIVER = "sampleblk"

# What a device of these names stands for exists whether somebody uses it or not.
_ALWAYS_THERE = ("loop", "nbd", "zram")

# What they keep when nobody uses them any more, and who uses them next does not set.
_KEPT_BY_QUEUES = (
    *("scheduler", "read_ahead_kb", "nr_requests", "nomerges", "rq_affinity"),
    *("iostats", "max_sectors_kb", "wbt_lat_usec"),
)

_TRACEFS = "/sys/kernel/tracing"

# Whoever opens a file there has the kernel mount it once more (kernel/trace/trace.c, trace_automount()).
_TRACEFS_OF_OLD = "/sys/kernel/debug/tracing"

# Of tracefs what has a line for each thing that somebody made, and what has a setting.
_TRACE_LISTS = (
    *("kprobe_events", "uprobe_events", "synthetic_events", "dynamic_events", "set_event", "trace_options"),
    *("show_event_filters", "show_event_triggers"),  # of kernels that have them
)
_TRACE_SETTINGS = (
    *("tracing_on", "trace_clock", "tracing_cpumask", "tracing_thresh", "max_graph_depth"),
    *("set_ftrace_filter", "set_ftrace_notrace", "set_ftrace_pid", "set_ftrace_notrace_pid"),
    *("set_graph_function", "set_graph_notrace", "set_event_pid", "set_event_notrace_pid"),
    *("function_profile_enabled", "buffer_subbuf_size_kb", "buffer_percent", "syscall_user_buf_size"),
)

# "7 (expanded: 1408)" of one that was not used yet, 1408 or 1410 of one that was: whole sub-buffers.
_BUFFER_SIZE = re.compile(r"(?:\d+ \(expanded: )?(\d+)\)?")
_SUB_BUFFERS_KIB = 64

_SYSCTL_FOLDERS = ("fs", "kernel", "vm")  # and those in them

# Those that the kernel changes by itself, and those whose value is what was last asked for once (sysctl(8)).
_NO_SETTINGS = re.compile(
    r"kernel/(ns_last_pid|tainted|perf_(event_max_sample_rate|cpu_time_max_percent)|"
    r"hung_task_warnings|hung_task_detect_count|(msg|sem|shm)_next_id|nr_\w+|acct)|"
    r"kernel/(random|pty)/.*|fs/quota/.*|"
    r"fs/(dentry-state|file-nr|inode-nr|inode-state|aio-nr)|"
    r"vm/(drop_caches|compact_memory|stat_refresh|min_free_kbytes|lowmem_reserve_ratio|user_reserve_kbytes|"
    r"admin_reserve_kbytes)"
)

# Other settings of the whole kernel.
_SETTINGS = {
    "/sys/devices/system/cpu/online": "processors online",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource": "clock source",
    "/sys/kernel/mm/transparent_hugepage/enabled": "transparent huge pages",
    "/sys/kernel/mm/transparent_hugepage/defrag": "defragmentation for huge pages",
    "/sys/kernel/mm/transparent_hugepage/shmem_enabled": "huge pages of shared memory",
    "/sys/kernel/debug/fault_around_bytes": "bytes mapped around a fault",
    "/sys/kernel/debug/kprobes/enabled": "kernel probes",
    "/sys/module/zswap/parameters/enabled": "compressed cache of swap",
    "/sys/bus/workqueue/devices/writeback/cpumask": "processors that write back",
    "/sys/devices/virtual/workqueue/cpumask": "processors of work queues",
    "/sys/kernel/mm/ksm/run": "same-page merging",
    "/proc/self/cgroup": "control group of pytest",
}

# What is started once for all that use it, and ends with the process: Python's own, and what sweeps fork trials from.
_STARTED_ONCE = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "sampleblk_lab.sweeps.launcher")

_KERNEL_THREAD = 0x00200000  # PF_KTHREAD, include/linux/sched.h
_ENDED = ("Z", "X")

# What is on its way out, such as a process that was told to end or a device that the kernel removes by and by.
_SETTLE_S = 1.0

# A setting longer than this is told by its beginning.
_MOST = 4096

# A clock that is this far from where it was has been set.
_CLOCK_S = 2.0

_offsets: list[float] = []  # of the clock from the time since boot, when it was first looked at


def present() -> frozenset[str]:
    """What there is now, a line for each thing. A difference of two answers is what came between."""
    kinds = (
        *(_taint, _modules, _mounts, _devices, _tracing, _sysctl, _settings, _of_pytest, _processes),
        *(_control_groups, _others),
    )
    return frozenset(line for kind in kinds for line in kind())


def damage() -> frozenset[str]:
    """What of it says that the kernel is not what it was."""
    return frozenset(map(_taint_line, _DAMAGE)).intersection(_taint())


def since(before: frozenset[str]) -> list[str]:
    """What has come since and stays."""
    end = time.monotonic() + _SETTLE_S
    while (left := _new(before)) and time.monotonic() < end:
        time.sleep(0.05)
    return left


def _new(before: frozenset[str]) -> list[str]:
    """What there is now and was not, whatever name a process has taken meanwhile."""
    pids = {_pid(line) for line in before}
    return sorted(line for line in present() - before if _pid(line) is None or _pid(line) not in pids)


def _pid(line: str) -> str | None:
    return line[line.rindex("(pid ") :] if line.startswith("process ") else None


def may_stay(lines: Iterable[str]) -> frozenset[str]:
    """What a fixture may keep for the tests to come: not what is damage."""
    return frozenset(lines).difference(map(_taint_line, _DAMAGE))


def _texts(paths: list[str]) -> list[str]:
    """What each file begins with; empty for one that this kernel lacks, is gone meanwhile or not readable."""
    return core.read_starts(paths, _MOST)


def _text(path: str) -> str:
    return _texts([path])[0]


def _whole(path: str) -> str:
    try:
        with open(path, errors="replace", newline="\n") as file:  # noqa: PTH123  # on the way of every test
            return file.read()
    except OSError:
        return ""


def _names(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))  # noqa: PTH208  # on the way of every test
    except OSError:
        return []


def _taint_line(bit: int) -> str:
    return f"kernel taint {1 << bit}" + (f" ({_TAINTS[bit]})" if bit in _TAINTS else "")


def _taint() -> list[str]:
    flags = int(_text("/proc/sys/kernel/tainted") or 0) & ~_OF_OUR_DRIVER
    return [_taint_line(bit) for bit in range(flags.bit_length()) if flags >> bit & 1]


def _modules() -> Iterator[str]:
    # proc(5): name, size, references, users, state, address, and in brackets how it taints
    for line in _whole("/proc/modules").splitlines():
        name, *_, last = line.split()
        if last.startswith("(") and name != _DRIVER:
            yield f"module {name}"


def _mounts() -> Iterator[str]:
    # proc(5), mountinfo: id, parent, device, root, mount point, its options, propagation …, "-", type, source, options
    seen: dict[str, int] = {}
    for line in _whole("/proc/self/mountinfo").split("\n")[:-1]:
        left, _, right = line.partition(" - ")
        filesystem, source, *options = right.split(" ")
        _, _, _, _, place, own, *propagation = left.split(" ")
        if (filesystem, place) == ("tracefs", _TRACEFS_OF_OLD):
            continue
        kinds = sorted(each.partition(":")[0] for each in propagation)  # which group it is is of no account
        words = dict.fromkeys([*own.split(","), *",".join(options).split(","), *kinds])
        told = f"mount {place} ({filesystem} of {source}: {','.join(words)})"
        seen[told] = seen.get(told, 0) + 1
        yield told if seen[told] == 1 else f"{told}, {seen[told]} times"  # one over another


def _devices() -> Iterator[str]:
    for name in _names("/sys/block"):
        folder = f"/sys/block/{name}"
        if not name.startswith(_ALWAYS_THERE):
            mapped = _text(f"{folder}/dm/name")
            yield f"block device {name}" + (f" ({mapped})" if mapped else "")
        elif name.startswith("loop") and (file := _text(f"{folder}/loop/backing_file")):
            yield f"block device {name} (a loop of {file})"
        elif (name.startswith("zram") and _text(f"{folder}/initstate") == "1") or _text(f"{folder}/pid"):
            yield f"block device {name} (in use)"
    yield from _queues()
    for line in _text("/proc/swaps").splitlines()[1:]:
        yield f"swap on {line.split()[0]}"


def _queues() -> Iterator[str]:
    """Settings of devices that outlive their use. Most of one kind have what they were made with, whenever that was."""
    for kind in _ALWAYS_THERE:
        names = [name for name in _names("/sys/block") if name.startswith(kind)]
        for setting in _KEPT_BY_QUEUES if len(names) > 1 else ():
            values = _texts([f"/sys/block/{name}/queue/{setting}" for name in names])
            [(usual, _)] = collections.Counter(values).most_common(1)
            for name, value in zip(names, values, strict=True):
                if value != usual:
                    yield f"{setting} of block device {name} is {value}"


def _tracing() -> Iterator[str]:
    yield from (f"tracing instance {name}" for name in _names(f"{_TRACEFS}/instances"))
    for name in _TRACE_LISTS:
        yield from (f"{name}: {line}" for line in _whole(f"{_TRACEFS}/{name}").splitlines())
    tracer = _text(f"{_TRACEFS}/current_tracer")
    if tracer not in ("", "nop"):
        yield f"tracer {tracer}"
    for name, value in zip(_TRACE_SETTINGS, _texts([f"{_TRACEFS}/{name}" for name in _TRACE_SETTINGS]), strict=True):
        if value:
            yield f"tracing {name} is {value}"
    disks = _names("/sys/block")
    for disk, value in zip(disks, _texts([f"/sys/block/{disk}/trace/enable" for disk in disks]), strict=True):
        if value == "1":
            yield f"blktrace of block device {disk}"
    if size := _BUFFER_SIZE.fullmatch(_text(f"{_TRACEFS}/buffer_size_kb")):
        yield f"tracing buffer_size_kb is {int(size[1]) // _SUB_BUFFERS_KIB * _SUB_BUFFERS_KIB}"


@functools.cache
def _sysctl_paths() -> list[str]:
    paths = [f"{folder}/{name}" for folder in _SYSCTL_FOLDERS for name in _names(f"/proc/sys/{folder}")]
    paths += [f"{path}/{name}" for path in paths for name in _names(f"/proc/sys/{path}")]
    return [f"/proc/sys/{path}" for path in paths if not _NO_SETTINGS.match(path)]


@functools.lru_cache(maxsize=1)
def _sysctl_lines(values: tuple[str, ...]) -> list[str]:
    """There are some two hundred, and after most tests they say what they have said before."""
    named = zip(_sysctl_paths(), values, strict=True)
    return [f"sysctl {path[len('/proc/sys/') :].replace('/', '.')} is {value}" for path, value in named if value]


def _sysctl() -> list[str]:
    return _sysctl_lines(tuple(_texts(_sysctl_paths())))


def _settings() -> Iterator[str]:
    for name, value in zip(_SETTINGS.values(), _texts(list(_SETTINGS)), strict=True):
        if value:
            yield f"{name}: {value}"
    for name in _names("/proc/self/ns"):
        with contextlib.suppress(OSError):
            yield f"namespace of pytest {os.readlink(f'/proc/self/ns/{name}')}"  # noqa: PTH115
    for folder in _names("/sys/kernel/debug"):
        if folder.startswith("fail") and (value := _text(f"/sys/kernel/debug/{folder}/probability")) not in ("", "0"):
            yield f"fault injection {folder} with probability {value}"
    offset = time.clock_gettime(time.CLOCK_REALTIME) - time.clock_gettime(time.CLOCK_BOOTTIME)
    if not _offsets:
        _offsets.append(offset)
    if abs(offset - _offsets[0]) > _CLOCK_S:
        yield f"clock set by {offset - _offsets[0]:+.0f} s"


def _of_pytest() -> Iterator[str]:
    """What the kernel keeps of our process, under which the next test would run, and the processes that it starts."""
    yield from (f"{name} of pytest: {value}" for name, value in proc.passed_on())
    yield f"readiness of pytest to be killed: {_text('/proc/self/oom_score_adj')}"
    for which, name in ((signal.ITIMER_REAL, "real"), (signal.ITIMER_VIRTUAL, "virtual"), (signal.ITIMER_PROF, "CPU")):
        if any(signal.getitimer(which)):
            yield f"a timer of pytest's {name} time runs"


def _processes() -> Iterator[str]:
    ours = str(os.getpid())
    pids = [pid for pid in _names("/proc") if pid.isdecimal() and pid != ours]
    for pid, stat in zip(pids, _texts([f"/proc/{pid}/stat" for pid in pids]), strict=True):
        # proc(5), stat: pid, (command), state, …, flags as the ninth
        left, _, right = stat.rpartition(")")
        fields = right.split(None, 7)
        if not fields or fields[0] in _ENDED or int(fields[6]) & _KERNEL_THREAD:
            continue
        command = _text(f"/proc/{pid}/cmdline")
        if not any(name in command for name in _STARTED_ONCE):
            yield f"process {left.partition('(')[2]} (pid {pid})"


def _control_groups() -> Iterator[str]:
    for folder, below, _ in os.walk("/sys/fs/cgroup"):
        yield from (f"control group {folder}/{name}".replace("/sys/fs/cgroup", "", 1) for name in below)


def _others() -> Iterator[str]:
    yield from (f"network interface {name}" for name in _names("/sys/class/net"))
    for kind in ("msg", "sem", "shm"):
        for line in _text(f"/proc/sysvipc/{kind}").splitlines()[1:]:
            yield f"System V {kind} {line.split()[1]}"
