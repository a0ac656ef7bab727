# SPDX-License-Identifier: MIT
"""Random jobs without a map end when their bytes are done, whatever is drawn; fio's may end before that."""

from __future__ import annotations

import random

import pytest

import sampleblk_lab as lab

CASES = 400
UNITS = {"k": 1 << 10, "m": 1 << 20}


def keys_of(number: int) -> dict[str, str]:
    r = random.Random(f"sampleblk random job {number}")
    keys = {"ioengine": "null", "norandommap": "1", "randseed": str(number + 1)}
    keys["rw"] = r.choice(["randread", "randwrite", "randrw", "randtrim"])
    keys["size"] = r.choice(["64k", "65k", "100k", "1m", "33k", "128k"])

    def maybe(share: float, key: str, *values: str) -> None:
        if r.random() < share:
            keys[key] = r.choice(values)

    maybe(0.9, "bs", "4k", "1k", "2k,8k", "8k,2k", "3k", "4k,64k")
    maybe(0.3, "bsrange", "1k-4k", "2k-9k", "4k-16k,1k-2k")
    shapes = ("zipf:1.2", "zipf:1.2:0.5", "pareto:0.3", "normal:20", "zoned:50/10:50/90", "zoned_abs:60/10k:40/20k")
    maybe(0.5, "random_distribution", *shapes)
    maybe(0.2, "percentage_random", "0", "50", "25,75")
    maybe(0.2, "blockalign", "512", "1k", "16k")
    maybe(0.15, "bs_is_seq_rand", "1")
    maybe(0.15, "bs_unaligned", "1")
    maybe(0.2, "nrfiles", "3")
    maybe(0.2, "io_size", "300k", "2m")
    if r.random() < 0.2:
        keys["rw"] += r.choice([":2", ":5"])
        keys["rw_sequencer"] = r.choice(["identical", "sequential"])
    if r.random() < 0.15:
        keys["zonemode"] = "strided"
        keys["zonesize"] = r.choice(["8k", "32k"])
        keys["zonerange"] = r.choice(["16k", "24k"])
        keys["zoneskip"] = r.choice(["0", "8k"])
    return keys


def test_they_do_all_of_their_bytes() -> None:
    ran = 0
    refused: list[str] = []
    for number in range(CASES):
        keys = keys_of(number)
        text = "[job]\n" + "".join(f"{key}={value}\n" for key, value in keys.items())
        try:
            result = lab.JobFile.parse(text).run(progress=False)
        except lab.InputError as error:
            refused.append(str(error))
            continue
        job = result.json()["jobs"][0]
        done = sum(job[way]["io_bytes"] for way in ("read", "write", "trim"))
        size = keys.get("io_size", keys["size"])
        assert done >= int(size[:-1]) * UNITS[size[-1]], text
        ran += 1
    assert ran > CASES * 0.8
    assert [text for text in refused if "is larger than the" not in text] == []


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("rw=randrw\nbs=4k,64k\nsize=33k", "of writes, 65536 bytes, is larger than the 33792 bytes that there"),
        ("rw=write\nbs=12k\nsize=24k\nnrfiles=3", "of writes, 12288 bytes, is larger than the 8192 bytes"),
        ("rw=randread\nbs=8k\nsize=1m\nzonemode=strided\nzonesize=4k\nzonerange=4k", "4096 bytes .* of a zone"),
        ("rw=randread\nbs=4k,64k\nbs_is_seq_rand\nsize=33k", "of reads, 65536 bytes"),
    ],
)  # fmt: skip
def test_a_block_that_fits_nowhere_is_refused(keys: str, said: str) -> None:
    with pytest.raises(lab.InputError, match=said):
        lab.JobFile.parse(f"[job]\nioengine=null\n{keys}\n").run(progress=False)
