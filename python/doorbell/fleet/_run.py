"""Maps over recordings and adds up: on threads or processes of this machine, or on Dask. What is mapped and added is the same."""

from __future__ import annotations

import pickle
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, List, Optional, Sequence, Tuple

from ._find import Recording
from ._map import Options, failed, map_recording
from ._partial import Part, merge

# Parts that are added up in one task.
GROUP = 16


@dataclass
class Cost:
    """Of one job. `moved_bytes`: the parts as they travel to where they are added up."""

    where: str
    seconds: float
    moved_bytes: int
    largest_part_bytes: int


def sized(recording: Recording, options: Options) -> Tuple[Part, int]:
    part = map_recording(recording, options)
    return part, len(pickle.dumps(part))


def merge_sized(parts: Sequence[Tuple[Part, int]]) -> Tuple[Part, int, int]:
    """The sum, bytes of all that came here, and of the largest."""
    sizes = [size for _, size in parts]
    return merge(part for part, _ in parts), sum(sizes), max(sizes)


def run(recordings: Sequence[Recording], options: Options, *, client: Any = None, workers: Optional[int] = None,
        processes: bool = False) -> Tuple[Part, Cost]:
    """`client`: a `distributed.Client`, or a cluster of which one is made."""
    began = time.monotonic()
    if client is None:
        kind = "processes" if processes else "threads"
        pool: Executor = ProcessPoolExecutor(workers) if processes else ThreadPoolExecutor(workers)
        with pool:
            part, moved, largest = _on_pool(pool, recordings, options)
        where = f"{pool._max_workers} {kind}"  # type: ignore[attr-defined]
    else:
        client, ours = _client(client)
        try:
            part, moved, largest = _on_dask(client, recordings, options)
            where = f"Dask, {len(client.scheduler_info(n_workers=-1)['workers'])} workers" if _counts(client) else "Dask"
        finally:
            if ours:
                client.close()
    return part, Cost(where, time.monotonic() - began, moved, largest)


def _on_pool(pool: Executor, recordings: Sequence[Recording], options: Options) -> Tuple[Part, int, int]:
    # Not more than a group ahead of what is added up: so many parts are in memory.
    waiting: List[Tuple[Recording, Future[Tuple[Part, int]]]] = []
    whole, moved, largest = Part(), 0, 0
    rest = iter(recordings)
    more = True
    while more or waiting:
        while more and len(waiting) < 2 * GROUP:
            recording = next(rest, None)
            if recording is None:
                more = False
            else:
                waiting.append((recording, _submit(pool, recording, options)))
        if waiting:
            group, waiting = waiting[:GROUP], waiting[GROUP:]
            parts = [_of_pool(recording, future, options) for recording, future in group]
            added, came, large = merge_sized(parts)
            whole, moved, largest = merge([whole, added]), moved + came, max(largest, large)
    return whole, moved, largest


def _submit(pool: Executor, recording: Recording, options: Options) -> Future[Tuple[Part, int]]:
    try:
        return pool.submit(sized, recording, options)
    except BrokenExecutor as error:
        broken: Future[Tuple[Part, int]] = Future()
        broken.set_exception(error)
        return broken


def _of_pool(recording: Recording, future: Future[Tuple[Part, int]], options: Options) -> Tuple[Part, int]:
    """A process that was killed ends the whole pool: what it had not read yet is read here."""
    if isinstance(future.exception(), BrokenExecutor):
        return sized(recording, options)
    return _answer(recording, future)


def _answer(recording: Recording, future: Any) -> Tuple[Part, int]:
    """A task that died (its worker was killed) is a rank that failed."""
    try:
        part, size = future.result()
        return part, size
    except Exception as error:
        return failed(recording, f"its task failed: {type(error).__name__}: {error}"), 0


def _on_dask(client: Any, recordings: Sequence[Recording], options: Options) -> Tuple[Part, int, int]:
    futures = [client.submit(sized, recording, options, pure=False, key=f"doorbell-rank-{n}-{time.time_ns()}")
               for n, recording in enumerate(recordings)]
    # Parts stay on their workers until all are there; those that failed are replaced here.
    _wait(futures)
    # Dask gives up the tasks that waited for a worker that died, too. Each alone, once more: then the one that kills is found.
    gone = [n for n, future in enumerate(futures) if future.status != "finished"]
    if len(gone) <= GROUP:
        for n in gone:
            futures[n] = client.submit(sized, recordings[n], options, pure=False)
            _wait([futures[n]])
    parts = [future if future.status == "finished" else _answer(recording, future)
             for recording, future in zip(recordings, futures)]
    groups = [parts[n:n + GROUP] for n in range(0, len(parts), GROUP)]
    added = [client.submit(merge_sized, group, pure=False) for group in groups]
    whole, moved, largest = Part(), 0, 0
    for future in added:
        part, came, large = future.result()
        whole, moved, largest = merge([whole, part]), moved + came, max(largest, large)
    return whole, moved, largest


def _wait(futures: List[Any]) -> None:
    from distributed import wait

    wait(futures)


def _client(client: Any) -> Tuple[Any, bool]:
    """The client itself, or one of a cluster (LocalCluster, SSHCluster, those of dask-jobqueue), which is closed afterwards."""
    if hasattr(client, "submit"):
        return client, False
    from distributed import Client

    return Client(client), True


def _counts(client: Any) -> bool:
    try:
        client.scheduler_info(n_workers=-1)
        return True
    except TypeError:  # Before distributed 2025.
        return False
