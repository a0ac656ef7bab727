# SPDX-License-Identifier: MIT
"""The keys of job files: all of fio's are known, and each is supported, without effect here, or refused."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beside_fio import needs_fio, needs_fio_3_33

import sampleblk_lab as lab

# What a workload must be able to say.
WANTED = (
    "rw rwmixread rwmixwrite bs blocksize bsrange bssplit size io_size filesize offset offset_increment "
    "number_ios nrfiles filename directory filename_format random_distribution percentage_random norandommap "
    "randseed randrepeat fsync fdatasync end_fsync fsync_on_close sync sync_file_range fallocate direct ioengine "
    "iodepth iodepth_batch iodepth_batch_complete_min iodepth_batch_complete_max iodepth_low fadvise_hint "
    "invalidate pre_read loops numjobs thread group_reporting new_group stonewall wait_for time_based runtime "
    "ramp_time startdelay thinktime thinktime_spin thinktime_blocks thinktime_blocks_type thinktime_iotime rate "
    "rate_min rate_iops rate_iops_min rate_process rate_cycle rate_ignore_thinktime latency_target latency_window "
    "latency_percentile latency_run max_latency verify do_verify verify_offset verify_interval verify_pattern "
    "verify_fatal verify_dump verify_backlog verify_backlog_batch verify_only buffer_pattern "
    "buffer_compress_percentage buffer_compress_chunk zero_buffers refill_buffers scramble_buffers "
    "dedupe_percentage write_bw_log write_lat_log write_iops_log write_hist_log log_avg_msec steadystate "
    "steadystate_duration steadystate_ramp_time cpus_allowed cpus_allowed_policy nice lockmem unlink "
    "unlink_each_loop create_fsync create_on_open create_only cgroup cgroup_weight cgroup_nodelete hipri "
    "fixedbufs registerfiles sqthread_poll read_iolog replay_no_stall replay_redirect replay_scale replay_skip"
)


def names() -> dict[str, dict[str, Any]]:
    """Every name and alias, with its row."""
    found = {}
    for row in lab.job_keys().rows():
        for name in [str(row["key"]), *str(row["alias"]).split()]:
            assert name not in found, f"{name} is there twice"
            found[name] = row
    return found


@pytest.mark.parametrize("key", WANTED.split())
def test_is_supported(key: str) -> None:
    assert names()[key]["support"] == "full"


@needs_fio
def test_every_key_of_fios_is_known() -> None:
    shown = subprocess.run(["fio", "--cmdhelp=all"], check=True, capture_output=True, text=True, timeout=60).stdout
    theirs = {line.split()[0].rstrip(":") for line in shown.splitlines() if line.strip()}
    engines = subprocess.run(["fio", "--enghelp"], check=True, capture_output=True, text=True, timeout=60).stdout
    for engine in engines.split()[3:]:
        # An engine in a package of its own (libaio's kin) says so instead.
        done = subprocess.run(["fio", f"--enghelp={engine}"], check=False, capture_output=True, text=True, timeout=60)
        theirs |= {match[1] for match in re.finditer(r"^(\w[\w-]*) +: ", done.stdout, re.MULTILINE)}
    assert len(theirs) > 200
    assert sorted(theirs - names().keys()) == []


REFUSED = sorted(name for name, row in names().items() if row["support"] == "refused")
ACCEPTED = sorted(name for name, row in names().items() if row["support"] == "accepted")


@pytest.mark.parametrize("key", REFUSED)
def test_a_refused_key_is_named_with_file_and_line(key: str) -> None:
    text = f"[global]\nsize=4k\n\n[a]\nrw=read ; fine\n{key}=1\n"
    with pytest.raises(
        lab.InputError, match=rf"jobs\.fio:6: key '{key}' is not supported and would change the result: \w+"
    ) as caught:
        lab.JobFile.parse(text, "jobs.fio")
    assert caught.value.line == 6


@pytest.mark.parametrize("key", ACCEPTED)
def test_a_key_without_effect_is_named_with_file_and_line(key: str, tmp_path: Path) -> None:
    jobs = lab.JobFile.parse(f"[a]\nrw=read\nsize=4k\nfilename={tmp_path}/f\n{key}=1\n", "jobs.fio")
    (notice,) = jobs.notices
    assert re.fullmatch(rf"jobs\.fio:5: {key} does not change the result here: .+", notice)


def test_notices_come_with_the_result(tmp_path: Path) -> None:
    jobs = lab.JobFile.parse(f"[a]\nrw=read\nsize=4k\nfilename={tmp_path}/f\nverify_async=2\n", "jobs.fio")
    result = jobs.run(progress=False)
    assert result.notices == jobs.notices != []


@pytest.mark.parametrize("engine", ["net", "cpuio", "rados", "posixaio", "external:/lib/x.so"])
def test_an_engine_of_fios_that_is_missing(engine: str) -> None:
    name = engine.split(":")[0]
    with pytest.raises(lab.InputError, match=rf"jobs:3: ioengine: fio.s .{name}. is not supp.*io_uring"):
        lab.JobFile.parse(f"[a]\nrw=read\nioengine={engine}\nsize=4k\n", "jobs")


@needs_fio_3_33
def test_no_value_that_fio_takes_is_unknown() -> None:
    """By fio's own lists of them: each is taken, or said to be not supported."""
    shown = subprocess.run(["fio", "--cmdhelp=all"], check=True, capture_output=True, text=True, timeout=60).stdout
    seen = 0
    for key in sorted({line.split()[0].rstrip(":") for line in shown.splitlines() if line.strip()}):
        if names()[key]["support"] != "full":
            continue
        done = subprocess.run(["fio", f"--cmdhelp={key}"], check=True, capture_output=True, text=True, timeout=60)
        block = re.search(r"valid values: (.*?)\n\n", done.stdout + "\n\n", re.DOTALL)
        values = re.findall(r"^ *(?:: )?(\S+) ", block[1] + " ", re.MULTILINE) if block else []
        for value in values:
            seen += 1
            said = ""
            try:
                lab.JobFile.parse(f"[a]\nsize=4k\n{key}={value}\n", "jobs")
            except lab.InputError as error:
                said = str(error)
            assert "is not known" not in said, f"{key}={value}: {said}"
    assert seen > 80


def test_a_misspelt_engine() -> None:
    with pytest.raises(lab.InputError, match="'psink' is not known"):
        lab.Job(rw="read", ioengine="psink", size="4k")


def test_zones_without_a_size_share_what_is_left(tmp_path: Path) -> None:
    """fio's example rand-zones has it so: the last zone is all that the others leave."""
    keys = {"rw": "randread", "bs": "4k", "size": "400k", "norandommap": 1, "number_ios": 2000, "io_size": "100M"}
    job = lab.Job(
        **keys, random_distribution="zoned:50/5:30/15:20/", filename=tmp_path / "f", io_log_entries=2000, loops=20
    )
    offsets = job.run(progress=False).io_log()["offset"].codes // 4096
    shares = [((low <= offsets) & (offsets < high)).mean() for low, high in ((0, 5), (5, 20), (20, 100))]
    assert [round(float(share), 1) for share in shares] == [0.5, 0.3, 0.2]


@needs_fio
@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"main.fio": "[a]\ninclude more.fio\nsize=8k\n", "more.fio": "bs=2k\n"}, ""),
        ({"main.fio": "[a]\ninclude more.fio\nsize=8k\n", "more.fio": "[b]\n"}, "a section in an included file"),
        ({"main.fio": "include more.fio\n[a]\nsize=8k\n", "more.fio": "bs=2k\n"}, "before the first section"),
        ({"main.fio": "[a]\ninclude main.fio\n"}, "a section in an included file"),
        ({"main.fio": "[a]\ninclude more.fio\n", "more.fio": "include more.fio\n"}, "nested more than 10 deep"),
    ],
)
def test_included_files_have_keys_of_the_section_only_as_for_fio(
    files: dict[str, str], said: str, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    main = tmp_path / "main.fio"
    if not said:
        (job,) = lab.JobFile(main, filename=tmp_path / "f", rw="write").run(progress=False).json()["jobs"]
        assert (job["write"]["total_ios"], job["write"]["io_bytes"]) == (4, 8192)
        return
    with pytest.raises(lab.InputError, match=said):
        lab.JobFile(main)
    told = subprocess.run(["fio", "--parse-only", main], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert re.search("No new sections|outside of|while parsing include", told.stderr)


def test_a_key_that_says_nothing_is_not_the_key_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which means yes: fio refuses it, too."""
    monkeypatch.setenv("EMPTY", "")
    for line in ("direct=${EMPTY}", "bs=", "bs= ", "rate=", "filename=", "unlink ="):
        key = line.partition("=")[0].strip()
        with pytest.raises(lab.InputError, match=rf"^<text>:4: {key}: no value \(expected {key}=VALUE"):
            lab.JobFile.parse(f"[a]\nrw=write\nsize=4k\n{line}\n")
    with pytest.raises(lab.InputError, match="filename: no value"):
        lab.Job(rw="write", size="4k", filename="")
    with pytest.raises(lab.InputError, match="command line:2: direct: no value"):
        lab.JobFile.from_command_line(["--name=a", "--direct=", "--size=4k"])
    assert lab.JobFile.parse("[a]\nrw=write\nsize=4k\nunlink\nwrite_lat_log=\n").names == ["a"]


@pytest.mark.parametrize("value", ["0", "", ",,"])
def test_an_alignment_is_a_size(value: str) -> None:
    with pytest.raises(lab.InputError, match="ba"):
        lab.Job(rw="randread", size="64k", ba=value)


@needs_fio
def test_a_priority_without_a_class_is_of_the_best_effort_one_as_fios(tmp_path: Path) -> None:
    """The kernel refuses one of no class (EINVAL)."""
    log = tmp_path / "calls"
    job = lab.Job(rw="write", size="4k", prio=4, filename=tmp_path / "file")
    job.run(progress=False)
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    command = "import sampleblk_lab as lab; lab.Job(rw='write', size='4k', prio=4, filename='file').run(progress=False)"
    for program in ([sys.executable, "-c", command], ["fio", "--name=a", "--rw=write", "--size=4k", "--prio=4"]):
        traced = ["strace", "-f", "-e", "trace=ioprio_set", "-o", str(log), *program]
        subprocess.run(traced, check=True, capture_output=True, timeout=120, cwd=tmp_path)
        assert "IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, 4)) = 0" in log.read_text()


def test_a_keyword_is_any_number_of_numpy_s_and_any_path(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    [entry] = os.scandir(os.fsencode(tmp_path))
    job = lab.Job(rw="read", bs=np.int64(4096), size=np.uint32(8192), rwmixread=np.float32(50), filename=entry)
    told = job.to_job_file()
    assert f"bs=4096\nsize=8192\nrwmixread=50.0\nfilename={tmp_path}/f\n" in told
    assert "time_based=0" in lab.Job(rw="read", size="4k", time_based=np.False_).to_job_file()
    with pytest.raises(TypeError, match=r"bs must be a string, a number, .* not \(4096\+0j\)"):
        lab.Job(bs=complex(4096))
