import os
from pathlib import Path

from tests.faults.scenario import scenario
from tests.faults.world import Cannot, World


@scenario(30)
async def out_of_memory(world: World) -> None:
    """The kernel kills a worker whose job takes too much memory: as a poison pill, and the others' jobs are done."""
    v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    is_v1 = v1.is_dir()
    group = (v1 if is_v1 else v2) / f"jobqueue-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if is_v1 else "memory.max")).write_text("250000000")
    except OSError as error:
        raise Cannot(f"no control group can be made: {error.strerror}") from None
    world.at_end(group.rmdir)
    await world.api()

    def confine() -> bool:
        for worker in world.kept_workers():
            (group / "cgroup.procs").write_text(str(worker.pid))
        return True

    await world.keep_workers(2, worker_concurrency=2)
    [pill] = await world.submit(1, {"do": "hog", "bytes": 1_000_000_000, "seconds": 1.0}, max_attempts=2)
    good = await world.submit(world.scaled(100, 20), {"seconds": 0.1})
    await world.until(lambda: confine() and world.is_final(pill), "the pill has come to its end", 60)
    assert await world.status_of(pill) == "failed"
    await world.drained()
    for job_id in good:
        assert await world.status_of(job_id) == "completed"
