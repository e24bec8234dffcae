"""Time jobs in turns, so that noise affects all of them equally."""

import statistics
import time
from collections.abc import Callable, Mapping


def medians(jobs: Mapping[str, Callable[[], object]], *, repeats: int = 7) -> dict[str, float]:
    """Return the median seconds of each job, after a warm-up."""
    for job in jobs.values():
        job()
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}
