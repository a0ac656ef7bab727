# SPDX-License-Identifier: MIT
"""fio's examples, as Debian ships them: each one runs, or is refused with the very key or engine that is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from beside_fio import needs_fio_3_33

import sampleblk_lab as lab

EXAMPLES = Path("/usr/share/doc/fio/examples")

pytestmark = [
    pytest.mark.skipif(not EXAMPLES.is_dir(), reason="Debian's package fio-examples is not installed"),
    needs_fio_3_33,
]

# What the examples want from the environment.
ENVIRONMENT = (
    "POOL CONT S3_KEY S3_ID SSE_KEY STORAGE_CLASS SWIFT_id SWIFT_token FIO_DIR GPU_DEV_IDS unixsocket FIO_RW FIO_BS "
    "FIO_IODEPTH FIO_SIZE SIZE"
)

# What is missing for the rest: "key" or "key=value". An engine is the value of ioengine.
REFUSED = {
    "butterfly": "flow",
    "cmdprio-bssplit": "cmdprio_bssplit",
    "cmdprio-percentage": "cmdprio_percentage",
    "cpp_null": "ioengine=cpp_null",
    "cpuio": "ioengine=cpuio",
    "dedupe-global": "dedupe_mode=working_set",
    "dev-dax": "ioengine=dev-dax",
    "dfs": "ioengine=dfs",
    "e4defrag": "ioengine=e4defrag",
    "e4defrag2": "ioengine=e4defrag",
    "enospc-pressure": "ignore_error",
    "exec": "ioengine=exec",
    "falloc": "ioengine=falloc",
    "filecreate-ioengine": "ioengine=filecreate",
    "filedelete-ioengine": "ioengine=filedelete",
    "filestat-ioengine": "ioengine=filestat",
    "fixed-rate-submission": "io_submit_mode=offload",
    "flow": "flow_sleep",
    "ftruncate": "ioengine=ftruncate",
    "gfapi": "ioengine=gfapi",
    "gpudirect-rdmaio-client": "ioengine=rdma",
    "gpudirect-rdmaio-server": "ioengine=rdma",
    "http-s3": "ioengine=http",
    "http-s3-crypto": "ioengine=http",
    "http-s3-storage-class": "ioengine=http",
    "http-swift": "ioengine=http",
    "http-webdav": "ioengine=http",
    "ime": "ioengine=ime_psync",
    "libcufile-cufile": "ioengine=libcufile",
    "libcufile-posix": "ioengine=libcufile",
    "libhdfs": "ioengine=libhdfs",
    "libiscsi": "ioengine=libiscsi",
    "libpmem": "ioengine=libpmem",
    "librpma_apm-client": "ioengine=librpma_apm_client",
    "librpma_apm-server": "ioengine=librpma_apm_server",
    "librpma_gpspm-client": "ioengine=librpma_gpspm_client",
    "librpma_gpspm-server": "ioengine=librpma_gpspm_server",
    "libzbc-rand-write": "zonemode=zbd",
    "libzbc-seq-read": "zonemode=zbd",
    "mtd": "ioengine=mtd",
    "nbd": "ioengine=nbd",
    "netio": "ioengine=net",
    "netio_multicast": "ioengine=net",
    "nfs": "nfs_url",
    "numa": "numa_cpu_nodes",
    "pmemblk": "ioengine=pmemblk",
    "poisson-rate-submission": "io_submit_mode=offload",
    "rados": "ioengine=rados",
    "rbd": "ioengine=rbd",
    "rdmaio-client": "ioengine=rdma",
    "rdmaio-server": "ioengine=rdma",
    "sg_verify": "ioengine=sg",
    "sg_verify-fail": "ioengine=sg",
    "sg_write_same_ndob": "ioengine=sg",
    "uring-cmd-ng": "ioengine=io_uring_cmd",
    "uring-cmd-zoned": "ioengine=io_uring_cmd",
    "xnvme-zoned": "zonemode=zbd",
    "zbd-rand-write": "zonemode=zbd",
    "zbd-seq-read": "zonemode=zbd",
}
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.fio"))
RUNNABLE = [name for name in NAMES if name not in REFUSED]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ENVIRONMENT.split():
        monkeypatch.setenv(name, "4k")
    monkeypatch.setenv("FIO_RW", "read")
    monkeypatch.chdir(tmp_path)


def test_debian_ships_more_than_eighty() -> None:
    assert len(NAMES) > 80
    assert len(RUNNABLE) >= 24
    assert set(REFUSED) <= set(NAMES)


@pytest.mark.parametrize("name", RUNNABLE)
def test_is_read(name: str) -> None:
    assert lab.JobFile(EXAMPLES / f"{name}.fio").names


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_names_what_is_missing(name: str) -> None:
    path = EXAMPLES / f"{name}.fio"
    key, _, value = REFUSED[name].partition("=")
    with pytest.raises(lab.InputError) as caught:
        lab.JobFile(path)
    error = caught.value
    assert error.source == str(path)
    line = path.read_text().splitlines()[error.line - 1]
    assert re.match(rf"\s*{key}\s*=\s*{value}", line)
    assert key in error.message
    assert value in error.message


@pytest.mark.full
@pytest.mark.parametrize("name", RUNNABLE)
def test_runs(name: str, tmp_path: Path) -> None:
    """Scaled down, on one small file instead of their devices, and not by the hour."""
    shrunk = {
        "directory": tmp_path,
        "filename": "file",
        "size": "1M",
        "io_size": "1M",
        "offset": 0,
        "offset_increment": "1M",
        "runtime": 2,
        "ramp_time": 0,
        "startdelay": 0,
        "thinktime": 0,
        "rate": 0,
        "rate_iops": 0,
        "steadystate_ramp_time": 0,
        "direct": 0,
        "loops": 1,
    }
    if name == "disk-zone-profile":
        shrunk |= {"zonesize": "64k", "zonerange": "64k", "zoneskip": "64k"}
    (tmp_path / "file").write_bytes(bytes(1 << 20))  # some want a device, which is there already
    result = lab.JobFile(EXAMPLES / f"{name}.fio", **shrunk).run(progress=False)
    assert result.errors == []
    moved = [job[way]["total_ios"] for job in result.json()["jobs"] for way in ("read", "write", "trim")]
    assert sum(moved) > 0
