"""Figures of the process, under the names every Prometheus client gives them, and what is running."""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Iterator

import topics
from topics.http.metrics.family import Family, counter, gauge, labels
from topics.http.metrics.scrape import Scrape


class ProcessFigures:
    def __init__(self) -> None:
        self._started = time.time()
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def families(self, _: Scrape) -> Iterator[Family]:
        about = labels(version=topics.__version__, python=platform.python_version())
        yield Family("topics_build_info", "gauge", "Always 1; its labels say what is running.", [(about, 1)])
        yield counter("process_cpu_seconds_total", "CPU time used.", time.process_time())
        yield gauge("process_start_time_seconds", "When the process started.", self._started)
        with open("/proc/self/statm", "rb") as file:
            virtual, resident = file.read().split()[:2]
        for name, pages in (("resident", resident), ("virtual", virtual)):
            size = int(pages) * self._page_bytes
            yield gauge(f"process_{name}_memory_bytes", f"Memory, {name}.", size)
        # One of them is the directory being read.
        yield gauge("process_open_fds", "Open file descriptors.", len(os.listdir("/proc/self/fd")) - 1)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        yield gauge("process_max_fds", "As many may be open.", most)
