# SPDX-License-Identifier: MIT
"""Workloads in fio's language: job files as they are, or keywords of the same names."""

from sampleblk_lab.workload.fio import FioResult
from sampleblk_lab.workload.job import Job, JobFile, Workload, job_keys
from sampleblk_lab.workload.replay import Replay
from sampleblk_lab.workload.result import JobError, Result
from sampleblk_lab.workload.run import JobRun, Progress

__all__ = [
    "FioResult",
    "Job",
    "JobError",
    "JobFile",
    "JobRun",
    "Progress",
    "Replay",
    "Result",
    "Workload",
    "job_keys",
]
