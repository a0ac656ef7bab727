# SPDX-License-Identifier: MIT
"""What a result was measured on, and whether two results may be compared."""

from __future__ import annotations

import json
import os
import platform
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sampleblk_lab
from sampleblk_lab import proc
from sampleblk_lab.paths import IN_VM

if TYPE_CHECKING:
    from collections.abc import Iterable

# What must be equal before times are compared.
ASPECTS = ("accelerator", "kernel", "machine")

# Builds of one series that are another kernel all the same: words of a release's name.
_FLAVOURS = ("cloud", "dbg", "debug", "hardened", "kasan", "lowlatency", "rt")

# The same memory modules are told as a few MiB more or less by another kernel.
_MEMORY_TOLERANCE = 1.05

_HOST = "SAMPLEBLK_HOST"

# What env.json may have (texts.read_json).
ENVIRONMENT = {"host": dict, "vm": dict, "kernel": str, "accel": str, "started_ns": int}


def host() -> dict[str, str]:
    """The physical machine: in a guest, what the host said of itself."""
    told = os.environ.get(_HOST)
    if told:
        about: dict[str, str] = json.loads(told)
        return about
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return {
        "name": platform.node(),
        "cpu": proc.cpu_model(),
        "cpus": str(os.cpu_count() or 0),
        "memory_mib": str(memory),
    }


def for_guest() -> dict[str, str]:
    """Variables for the environment of a guest, which tell it what :func:`host` says here."""
    return {_HOST: json.dumps(host())}


def tell_guest() -> None:
    """Puts them into ours, which a guest inherits."""
    os.environ.update(for_guest())


def environment() -> dict[str, Any]:
    """What ``env.json`` holds: kernel, accelerator, VM, host, versions and the time."""
    told = os.environ.get(IN_VM)
    about: dict[str, Any] = {
        "kernel": platform.release(),
        "accel": "none",
        "host": host(),
        "python": platform.python_version(),
        "sampleblk_lab": sampleblk_lab.__version__,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "started_ns": time.time_ns(),
    }
    if told:
        vm = json.loads(told)
        about["vm"] = vm
        about["accel"] = vm["accel"]
    return about


def aspects(environment: dict[str, Any]) -> dict[str, str]:
    """Accelerator, kernel and machine of an env.json, as words; older files lack some."""
    vm = environment.get("vm") or {}
    about = environment.get("host") or {}
    guest = f"VM of {vm.get('cpus')} CPUs and {vm.get('memory_mib')} MiB" if vm else ""
    machine = ", ".join(filter(None, (str(about.get("name") or ""), _hardware(about), guest)))
    return {
        "accelerator": str(environment.get("accel") or vm.get("accel") or "none"),
        "kernel": str(environment.get("kernel") or ""),
        "machine": machine,
    }


def _hardware(about: dict[str, Any]) -> str:
    """Processor, its count and the memory of a host, as words."""
    model, cpus, memory = about.get("cpu"), about.get("cpus"), about.get("memory_mib")
    counted = f"{cpus} x {model}" if cpus and model else str(model or "")
    return ", ".join(filter(None, (counted, f"{memory} MiB" if memory else "")))


def series(release: str) -> str:
    """What kernels that measure alike have in common: ``6.1`` of 6.1.0-56-amd64, and a flavour such as ``rt``."""
    version = re.match(r"\d+\.\d+", release)
    if version is None:
        return release
    words = re.split(r"[-+._]", release[version.end() :])
    return " ".join([version[0], *(flavour for flavour in _FLAVOURS if any(w.startswith(flavour) for w in words))])


@dataclass(frozen=True)
class Sameness:
    """Whether results of several environments may be compared.

    Attributes:
        differs: What each of them is, where one of the aspects differs: aspect to words.
        notes: What a reader must know though they may.
    """

    differs: dict[str, str]
    notes: tuple[str, ...]


def same(environments: Iterable[dict[str, Any]]) -> Sameness:
    """Compares what results were measured on.

    The host's name is not its identity: its processors, their number, its memory and the shape of the VM are. Kernels
    count as the same within a series.
    """
    told = list(environments)
    words = [aspects(one) for one in told]
    differs, notes = {}, []
    for aspect in ASPECTS:
        kinds = sorted({one[aspect] for one in words})
        if len(kinds) < 2:
            continue
        listed = "; ".join(kinds)
        if aspect == "kernel" and len({series(kind) for kind in kinds}) == 1:
            notes.append(f"kernels of one series: {listed}")
        elif aspect == "machine" and not _machines_differ(told):
            notes.append(f"machines of one kind: {listed}")
        else:
            differs[aspect] = listed
    return Sameness(differs, tuple(notes))


def _machines_differ(environments: list[dict[str, Any]]) -> bool:
    hosts = [one.get("host") or {} for one in environments]
    vms = [one.get("vm") or {} for one in environments]
    parts = [(h.get("cpu"), h.get("cpus"), v.get("cpus"), v.get("memory_mib")) for h, v in zip(hosts, vms, strict=True)]
    shapes = {tuple(map(str, part)) for part in parts}
    # Older files do not have the host's memory.
    memories = [int(host["memory_mib"]) for host in hosts if host.get("memory_mib")]
    return len(shapes) > 1 or (bool(memories) and max(memories) > _MEMORY_TOLERANCE * min(memories))
