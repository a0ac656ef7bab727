# SPDX-License-Identifier: MIT
"""Random job files from the grammar, run by our engines and by the real fio, and what the two did compared.

A job file is a function of its number, so a number is all that a failure needs to name. What fio did is read from its
JSON and from its own log of every I/O (``write_iolog``), what we did from our JSON and ``io_log()``.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sampleblk_lab as lab

FIO_SECONDS = 20  # a job takes milliseconds
WAYS = ("read", "write", "trim")
Transfer = tuple[str, str, int, int]  # file, direction, offset, length


@dataclass
class JobOutcome:
    """What one job did."""

    error: int
    ios: dict[str, int]
    bytes: dict[str, int]
    syncs: tuple[int, int]  # that are counted, that have a latency
    transfers: set[Transfer] = field(default_factory=set)


@dataclass
class Outcome:
    """What one of the two made of a job file."""

    refused: str = ""
    hung: bool = False
    jobs: list[JobOutcome] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)  # that are there afterwards, with their sizes


def read_json(jobs: list[dict[str, Any]]) -> list[JobOutcome]:
    return [
        JobOutcome(
            error=job["error"],
            ios={way: job[way]["total_ios"] for way in WAYS},
            bytes={way: job[way]["io_bytes"] for way in WAYS},
            syncs=(job["sync"]["total_ios"], job["sync"]["lat_ns"]["N"]),
        )
        for job in jobs
    ]


@dataclass
class Case:
    """A job file, as its keys."""

    number: int
    sections: list[dict[str, str]]

    def text(self, directory: Path) -> str:
        lines = ["[global]", f"directory={directory}"]
        for i, keys in enumerate(self.sections):
            lines += [f"[job{i}]", *(f"{key}={value}" for key, value in keys.items())]
        return "\n".join(lines) + "\n"


def one_section(r: random.Random) -> dict[str, str]:
    """Keys that end by themselves, and soon."""

    def maybe(share: float, key: str, *values: str) -> None:
        if r.random() < share:
            keys[key] = r.choice(values)

    keys: dict[str, str] = {}
    # Without vsync: fio's loses I/Os.
    engine = r.choice(["psync", "sync", "pvsync", "pvsync2", "libaio", "io_uring", "mmap", "null"])
    keys["ioengine"] = engine
    ways = ["read", "write", "randread", "randwrite", "rw", "randrw"]
    if engine == "null":  # fio trims nothing but devices
        ways += ["trim", "randtrim", "trimwrite", "randtrimwrite"]
    keys["rw"] = r.choice(ways)
    is_random = keys["rw"].startswith("rand")
    if r.random() < 0.15 and "trimwrite" not in keys["rw"]:
        keys["rw"] += f":{r.randint(2, 9)}" if is_random else r.choice([":4k", ":-8k", ":12k", ":-4k", ":1k"])
    # --- sizes
    sizes = ["512", "1k", "2k", "4k", "8k", "12k"]
    shape = r.random()
    if shape < 0.55:
        keys["bs"] = r.choice(sizes)
    elif shape < 0.7:
        keys["bs"] = ",".join(r.choice(["2k", "4k", "8k"]) for _ in range(r.randint(2, 3)))
    elif shape < 0.8:
        keys["bsrange"] = r.choice(["1k-4k", "4k-16k", "2k-2k", "512-8k"])
    elif shape < 0.9:
        keys["bssplit"] = r.choice(["4k/50:8k/50", "1k/10:4k/90", "2k/20:8k/", "4k/100"])
    if r.random() < 0.5:
        keys["size"] = r.choice(["64k", "128k", "256k", "100k", "65k", "24k"])
    else:
        keys["filesize"] = r.choice(["64k", "16k", "100k", "33k"])
        maybe(0.5, "size", "64k", "128k", "200k", "50%", "100%")
    maybe(0.2, "nrfiles", "2", "3", "4")
    if "nrfiles" in keys:
        services = ("roundrobin", "sequential", "random", "roundrobin:3", "sequential:2", "random:4")
        maybe(0.5, "file_service_type", *services)
        maybe(0.3, "openfiles", "1", "2")
    maybe(0.15, "io_size", "32k", "96k", "300k", "512k", "50%")
    maybe(0.15, "offset", "4k", "16k", "20k", *(["10%", "25%"] if engine != "null" else []))
    maybe(0.1, "number_ios", "1", "7", "20", "100")
    maybe(0.15, "loops", "2", "3")
    # --- pattern
    if is_random:
        maybe(0.2, "norandommap", "1")
        maybe(0.15, "percentage_random", "50", "0", "100", "30,70")
        maybe(0.15, "random_distribution", "zipf:1.2", "pareto:0.3", "normal:20", "zoned:50/10:50/90", "random")
        maybe(0.1, "blockalign", "512", "4k", "8k", "1k")
        maybe(0.1, "randrepeat", "0")
        maybe(0.1, "softrandommap", "1")
        maybe(0.2, "rw_sequencer", "sequential", "identical")
    maybe(0.1, "rwmixread", "0", "30", "100")
    maybe(0.05, "bs_is_seq_rand", "1")
    maybe(0.05, "bs_unaligned", "1")
    if r.random() < 0.08:
        keys |= {"zonemode": "strided", "zonesize": r.choice(["8k", "16k"]), "zonerange": "16k"}
        maybe(0.5, "zoneskip", "8k", "16k")
    # --- depth
    if engine in ("libaio", "io_uring", "null"):
        maybe(0.8, "iodepth", "2", "4", "8", "16")
        maybe(0.3, "iodepth_batch", "1", "2", "4")
        maybe(0.2, "iodepth_batch_complete_min", "0", "1", "4")
        maybe(0.1, "iodepth_batch_complete_max", "4", "16")
        maybe(0.2, "iodepth_low", "1", "4")
        maybe(0.1, "serialize_overlap", "1")
    # --- durability
    maybe(0.08, "fsync", "1", "3", "16")
    maybe(0.08, "fdatasync", "1", "4")
    maybe(0.05, "sync_file_range", "write:4", "wait_before,write:2")
    maybe(0.08, "end_fsync", "1")
    maybe(0.06, "fsync_on_close", "1")
    maybe(0.05, "sync", "1", "dsync")
    maybe(0.05, "direct", "1")
    # --- files
    maybe(0.05, "create_on_open", "1")
    maybe(0.1, "overwrite", "1")
    maybe(0.05, "file_append", "1")
    maybe(0.08, "unlink", "1")
    maybe(0.05, "unlink_each_loop", "1")
    maybe(0.1, "fallocate", "none", "native", "posix", "keep", "truncate")
    if engine != "null":  # fio reads from a file that it did not open
        maybe(0.05, "pre_read", "1")
    maybe(0.1, "invalidate", "0")
    maybe(0.05, "create_fsync", "0")
    # --- data
    maybe(0.15, "verify", "crc32c", "md5", "sha256", "xxhash", "pattern", "crc16", "null")
    if "verify" in keys:
        if keys["verify"] == "pattern":
            keys["verify_pattern"] = r.choice(["0xdeadbeef", '"abc"%o', "-120xdeadface", "42"])
        maybe(0.3, "verify_interval", "1k", "512", "4k", "3k")
        maybe(0.2, "verify_backlog", "1", "4", "16")
        maybe(0.1, "verify_backlog_batch", "1", "3")
        maybe(0.15, "do_verify", "0")
        maybe(0.1, "verify_fatal", "1")
    maybe(0.05, "zero_buffers", "1")
    maybe(0.05, "refill_buffers", "1")
    maybe(0.05, "buffer_compress_percentage", "50", "100")
    maybe(0.05, "dedupe_percentage", "50")
    maybe(0.05, "continue_on_error", "all", "read", "verify")
    maybe(0.03, "thinktime", "20")
    maybe(0.03, "rate_iops", "20000")
    return keys


def case_of(number: int) -> Case:
    """The job file of a number."""
    r = random.Random(f"sampleblk differential {number}")
    sections = [one_section(r)]
    if r.random() < 0.15:
        sections.append(one_section(r) | ({"stonewall": "1"} if r.random() < 0.7 else {}))
    return Case(number, sections)


def files_of(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in directory.iterdir() if path.is_file()}


def run_ours(case: Case, directory: Path) -> Outcome:
    outcome = Outcome()
    try:
        jobs = lab.JobFile.parse(case.text(directory), "job.fio", io_log_entries=20_000)
        with jobs.prepare() as run:
            run.start()
            result = run.wait(timeout_s=60)
    except (lab.InputError, OSError) as error:
        outcome.refused = str(error)
        return outcome
    outcome.jobs = read_json(result.json()["jobs"])
    log = result.io_log()
    assert log.metadata["lost"] == "0"
    for row in log.rows():
        transfer = (Path(str(row["path"])).name, str(row["direction"]), int(row["offset"]), int(row["size"]))
        outcome.jobs[int(row["job_number"])].transfers.add(transfer)
    outcome.files = files_of(directory)
    return outcome


def kill_tree(root: int) -> None:
    """A process and all that descend from it: fio's jobs are in sessions of their own, and outlive their parent."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended meanwhile
            children.setdefault(parent, []).append(int(entry.name))
    tree = [root]
    for pid in tree:
        tree += children.get(pid, [])
    for pid in tree:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def run_fio(case: Case, directory: Path) -> Outcome:
    outcome = Outcome()
    aside = directory.with_name(directory.name + ".aside")
    aside.mkdir()
    # One section for each copy of a job, each with a log of its own.
    logged = []
    number = 0
    for line in case.text(directory).splitlines():
        logged.append(line)
        if line.startswith("[job"):
            logged.append(f"write_iolog={aside}/log.{number}")
            number += 1
    (aside / "job.fio").write_text("\n".join(logged) + "\n")
    process = subprocess.Popen(
        ["fio", "--output-format=json", f"--aux-path={aside}", str(aside / "job.fio")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=aside,
    )  # fmt: skip
    try:
        stdout, stderr = process.communicate(timeout=FIO_SECONDS)
    except subprocess.TimeoutExpired:
        kill_tree(process.pid)
        process.communicate()
        shutil.rmtree(aside)
        outcome.hung = True
        return outcome
    begin = stdout.find("{\n")
    said = stdout[:begin] + stderr
    if begin < 0 or "blocksize is larger than data set range" in said:
        outcome.refused = said.strip() or "no output"
        shutil.rmtree(aside)
        return outcome
    outcome.jobs = read_json(json.JSONDecoder().raw_decode(stdout[begin:])[0]["jobs"])
    # Its log has an I/O once more for each time that the engine was busy, so the transfers are a set.
    for i, job in enumerate(outcome.jobs):
        log = aside / f"log.{i}"
        lines = log.read_text().splitlines() if log.exists() else []
        for line in lines:
            words = line.split()
            if len(words) == 5 and words[2] in WAYS:
                job.transfers.add((Path(words[1]).name, words[2], int(words[3]), int(words[4])))
    shutil.rmtree(aside)
    outcome.files = files_of(directory)
    return outcome


def run_both(case: Case, directory: Path) -> tuple[Outcome, Outcome]:
    """Each in a directory of its own, of the same name's length."""
    outcomes = []
    for name, run in (("ours", run_ours), ("fios", run_fio)):
        place = directory / name
        place.mkdir()
        outcomes.append(run(case, place))
        shutil.rmtree(place)
    return outcomes[0], outcomes[1]


# --- what must be equal


def sizes_of(keys: dict[str, str], way: str) -> set[str]:
    """The block sizes that a job draws from."""
    if "bsrange" in keys:
        low, high = keys["bsrange"].split("-")
        return {low} if low == high else {low, high}
    if "bssplit" in keys:
        return {part.split("/")[0] for part in keys["bssplit"].split(":")}
    triple = keys.get("bs", "4k").split(",")
    if keys.get("bs_is_seq_rand") == "1":
        return set(triple)
    return {triple[min(WAYS.index(way), len(triple) - 1)]}


@dataclass
class Fixed:
    """What a job file leaves no choice in."""

    places: bool  # the transfers, as a set
    amount: bool  # how many, and how many bytes
    each_way: bool  # the same, each direction by itself


def rewrites(keys: dict[str, str]) -> bool:
    """Whether a job may write a place more than once, or with blocks that meet."""
    rw, _, modifier = keys["rw"].partition(":")
    sizes = sizes_of(keys, "write") | (sizes_of(keys, "read") if "rw" in rw else set())
    loose = {"norandommap", "percentage_random", "random_distribution", "blockalign", "zonemode", "io_size", "loops"}
    return bool(modifier) or len(sizes) > 1 or bool(loose & keys.keys())


def in_bytes(text: str) -> int:
    return int(text.removesuffix("k")) * (1024 if text.endswith("k") else 1)


def fixed(keys: dict[str, str]) -> Fixed:
    rw, _, modifier = keys["rw"].partition(":")
    is_random = rw.startswith("rand")
    kind = rw.removeprefix("rand")
    ways = {"rw": ["read", "write"], "trimwrite": ["trim", "write"]}.get(kind, [kind])
    sizes = set().union(*(sizes_of(keys, way) for way in ways))
    one_size = len(sizes) == 1
    mixed = kind == "rw" and keys.get("rwmixread") not in ("0", "100")
    drawn_files = "nrfiles" in keys and keys.get("file_service_type", "").startswith("random")
    # A pass that a limit cuts short does as much as another, and not the same.
    cut = any(key in keys for key in ("number_ios", "io_size")) or {"size", "filesize"} <= keys.keys()
    loose = any(
        key in keys
        for key in ("norandommap", "percentage_random", "random_distribution", "blockalign", "rw_sequencer", "zonemode")
    )
    # Blocks that are written twice are read back once, and which of them are is drawn.
    rereads = "verify" in keys and (mixed or cut or (is_random and (loose or bool(modifier))))
    once = not (is_random and (loose or modifier))
    # A mix ends with the direction that comes to the end of the file first, unless its bytes are done before.
    lengths = [keys[key] for key in ("size", "filesize", "io_size") if key in keys and not keys[key].endswith("%")]
    whole = one_size and all(in_bytes(length) % in_bytes(next(iter(sizes))) == 0 for length in lengths)
    # fio's map counts in the smallest size of all directions, used or not, and passes over blocks.
    other_sizes = is_random and "bs" in keys and len(set(keys["bs"].split(","))) > 1
    drawn_amount = (
        "percentage_random" in keys
        or (is_random and bool(modifier))
        or ((is_random or mixed) and "zonemode" in keys)
        or (is_random and "norandommap" not in keys and {"random_distribution", "blockalign"} & keys.keys() != set())
        # fio ends, without an error, where it draws a block that lies across the end.
        or (is_random and "random_distribution" in keys and not whole)
        or (mixed and (bool(modifier) or not whole or {"io_size", "loops"} <= keys.keys()))
        or other_sizes
    )
    return Fixed(
        places=one_size and not mixed and not drawn_files and once and not (cut and is_random) and not other_sizes,
        amount=one_size and not rereads and not drawn_amount,
        each_way=not mixed,
    )


def explained(keys: dict[str, str], mine: JobOutcome, theirs: JobOutcome) -> str:
    """Why the two differ where they do; empty where there is no reason that we know."""
    kind = keys["rw"].partition(":")[0].removeprefix("rand")
    is_null = keys["ioengine"] == "null"
    queues = keys["ioengine"] in ("libaio", "io_uring")
    verifies = "verify" in keys
    # fio finds wrong blocks in what we find right.
    false_alarm = verifies and theirs.error == errno.EILSEQ and mine.error == 0
    # Passes over the same files after the first.
    repeats = bool({"loops", "io_size"} & keys.keys())
    # --- both fail, or fio alone
    if queues and mine.error == errno.EIO and theirs.error == 0 and mine.ios["read"] * 4 < theirs.ios["read"] * 5:
        return "fio counts a read of nothing as an I/O on its asynchronous engines, to us it is an error on all"
    if mine.error == theirs.error == errno.EILSEQ:
        return "we check every block, fio stops at the first that differs"
    if mine.error == theirs.error and theirs.error in (errno.EIO, errno.EINVAL):
        return "fio counts the I/O that failed"
    if kind == "read" and {"create_on_open", "continue_on_error"} <= keys.keys() and theirs.error == errno.EIO:
        return "a read of nothing ends fio's job whatever continue_on_error says"
    if keys["ioengine"] == "mmap" and theirs.error == errno.EPERM:
        return "fio's mmap engine wants blocks of whole pages for direct and for syncs"
    empty = bool({"create_on_open", "unlink_each_loop"} & keys.keys())
    if keys["ioengine"] == "mmap" and empty and mine.error == (errno.EIO if kind == "read" else errno.ENXIO):
        return "to us what lies beyond the end of a mapped file is an error; fio dies of SIGBUS, and reports none"
    if verifies and kind == "read" and mine.error == errno.ENOENT and theirs.error == errno.EILSEQ:
        return "fio lays out the file that a job is to check, and finds it wrong; to us it is missing"
    if "pre_read" in keys and theirs.error == errno.EIO:
        return "fio cannot read a file ahead that is shorter than its part"
    if is_null and "fsync_on_close" in keys and theirs.error == errno.EBADF:
        return "fio syncs a file of the null engine, which has no descriptor"
    if is_null and "unlink_each_loop" in keys and theirs.error == errno.ENOENT:
        return "fio removes files that the null engine does not have"
    if "unlink_each_loop" in keys and "norandommap" in keys and theirs.error == errno.ENOENT:
        return "how many passes io_size needs is drawn, and fio removes its files after each"
    holes = "zonemode" in keys or ":" in keys["rw"]
    if "unlink_each_loop" in keys and kind == "read" and holes and {mine.error, theirs.error} == {0, errno.ENOENT}:
        return "whether a pass in zones, or with holes, ends before the bytes of all loops are done is drawn"
    if "unlink_each_loop" in keys and kind == "rw" and errno.EIO in (mine.error, theirs.error):
        return "whether the first of a later loop is a write, or a read of an empty file, is drawn"
    # --- files that begin empty or short
    if "create_on_open" in keys and kind == "rw":
        return "whether a mix reads of a file that begins empty what it has written before is drawn"
    if "file_append" in keys and is_null:
        return "fio appends to null files, which have no end, nothing"
    if "file_append" in keys and (repeats or "zonemode" in keys):
        return "where fio appends in later passes and zones depends on the size before"
    if is_null and "filesize" in keys and ":-" in keys["rw"]:
        return "fio goes backwards from an end that such a file does not have"
    if keys.get("offset", "").endswith("%") and (repeats or "zonemode" in keys):
        return "fio counts an offset in percent of a new file from its second loop on, and where its zones begin again"
    if keys.get("offset", "").endswith("%") and keys["ioengine"] == "mmap" and verifies:
        return "and from when it verifies, with a mapping that begins at the other"
    # --- how much
    syncs = {"fsync", "fdatasync", "sync_file_range"} & keys.keys()
    done = [sum(one.ios.values()) for one in (mine, theirs)]
    if queues and syncs and "number_ios" in keys and done[1] < done[0] <= done[1] + theirs.syncs[1]:
        return "fio counts a sync that its engine queues against number_ios"
    if kind == "trimwrite" and "offset" in keys and theirs.ios["trim"] < theirs.ios["write"]:
        return "fio's trimwrite loses trims behind an offset"
    if verifies and kind == "read" and mine.ios["read"] == theirs.ios["read"] * int(keys.get("loops", "1")):
        return "fio's verify without writes reads once, whatever the loops"
    parts = "zonemode" in keys or (":" in keys["rw"] and "nrfiles" in keys)  # a pass leaves bytes of size= undone
    if verifies and parts and all(theirs.ios[way] == 2 * mine.ios[way] for way in WAYS):
        return "fio's verify doubles the bytes of a pass in zones, and with holes in several files"
    if is_null and kind == "trim" and syncs and done[0] < done[1]:
        return "fio counts a sync of a job that trims as a trim"
    # --- verify
    written = [(one.ios["write"], one.ios["trim"]) for one in (mine, theirs)]
    if verifies and kind == "trimwrite" and mine.ios["read"] < theirs.ios["read"] and written[0] == written[1]:
        return "fio reads back also what was trimmed again at last"
    if false_alarm and rewrites(keys):
        return "fio forgets which of several writes to a place was the last"
    if false_alarm and kind == "rw" and int(keys.get("openfiles", "9")) < int(keys.get("nrfiles", "1")):
        return "fio reads back file by file, and takes the seeds in the order in which a mix wrote to several files"
    if verifies and theirs.error == errno.EILSEQ and mine.error == errno.ENOENT and "unlink_each_loop" in keys:
        return "fio ends before it comes to the file that it removed"
    return ""


@dataclass
class Verdict:
    """What the comparison of a job file found."""

    differences: list[str] = field(default_factory=list)  # though the job file leaves no choice
    reasons: list[str] = field(default_factory=list)  # of those that fio is known for
    compared: bool = True  # both ran it


def judge(case: Case, mine: Outcome, theirs: Outcome) -> Verdict:
    """Where the two did not do the same."""
    if "lies beyond the end of" in mine.refused:
        return Verdict(reasons=["fio does nothing behind the end of a file, without an error"], compared=False)
    if "blocksize is larger than data set range" in theirs.refused and any("io_size" in keys for keys in case.sections):
        return Verdict(reasons=["an io_size below a block is refused by fio; to us it is one block"], compared=False)
    if "bytes that there are of a" in mine.refused:
        return Verdict(reasons=["fio does nothing where no block fits, without an error"], compared=False)
    if bool(mine.refused) != bool(theirs.refused):
        return Verdict([f"refused: {mine.refused or 'no'} | {theirs.refused or 'no'}"], compared=False)
    if mine.refused:
        return Verdict(compared=False)
    if theirs.hung:
        return Verdict(reasons=["some of fio's combinations of depth and batch never end"], compared=False)
    verdict = Verdict()
    for keys, a, b in zip(case.sections, mine.jobs, theirs.jobs, strict=True):
        found = differences_of_job(keys, a, b)
        reason = explained(keys, a, b) if found else ""
        if reason:
            verdict.reasons.append(reason)
        else:
            verdict.differences += found
    if mine.files != theirs.files and all(fixed(keys).places for keys in case.sections):
        # Lengths follow from the transfers; what explains those may show in the files alone.
        reasons = [
            reason for keys, a, b in zip(case.sections, mine.jobs, theirs.jobs, strict=True)
            if (reason := explained(keys, a, b))
        ]  # fmt: skip
        if reasons:
            verdict.reasons += [reason for reason in reasons if reason not in verdict.reasons]
        else:
            verdict.differences.append(f"files: {mine.files} | {theirs.files}")
    return verdict


def differences_of_job(keys: dict[str, str], mine: JobOutcome, theirs: JobOutcome) -> list[str]:
    """What one job did otherwise, of what its keys leave no choice in."""
    must = fixed(keys)
    found = []
    if mine.error != theirs.error:
        found.append(f"error: {mine.error} | {theirs.error}")
    # fio counts no other syncs than fsync, and with several I/Os in flight some of them twice.
    counts = "fsync" in keys and not {"fdatasync", "sync_file_range", "iodepth"} & keys.keys()
    if counts and must.amount and must.each_way and keys["ioengine"] != "null" and mine.syncs != theirs.syncs:
        found.append(f"syncs: {mine.syncs} | {theirs.syncs}")
    for what in ("ios", "bytes") if must.amount else ():
        x, y = getattr(mine, what), getattr(theirs, what)
        if x != y if must.each_way else sum(x.values()) != sum(y.values()):
            found.append(f"{what}: {x} | {y}")
    if must.places and mine.transfers != theirs.transfers:
        only = sorted(mine.transfers - theirs.transfers)[:3], sorted(theirs.transfers - mine.transfers)[:3]
        found.append(f"transfers: {len(mine.transfers)} | {len(theirs.transfers)}: {only[0]} | {only[1]}")
    return found
