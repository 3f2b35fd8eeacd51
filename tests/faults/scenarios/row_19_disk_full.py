import os
import shutil
import subprocess

from tests.faults.scenario import scenario
from tests.faults.world import Cannot, World


@scenario(19, short=True)
async def disk_full(world: World) -> None:
    """The disk of PostgreSQL is full: creates are answered 503, and all goes on by itself when there is room."""
    if os.geteuid() != 0:
        raise Cannot("mounting a small disk needs root")
    world.postgres.stop()
    data, disk = world.postgres.data_dir, world.folder / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300m", "tmpfs", disk], check=False, capture_output=True)
    if done.returncode:
        raise Cannot(f"a small disk cannot be mounted: {done.stderr.decode().strip()}")
    world.at_end(lambda: subprocess.run(["umount", "-l", disk], check=False))
    shutil.move(data, disk / "pg")
    data.symlink_to(disk / "pg")
    os.chmod(disk, 0o755)  # noqa: PTH101  the server's own user must reach its folder
    world.postgres.start()
    await world.api()
    await world.workers(1)
    await world.submit(20)
    with world.outage(longer_than_a_lease=True):
        filler = disk / "filler"
        with filler.open("wb") as file:
            free = os.statvfs(disk)
            os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize)
        refused = 0
        for _ in range(200):
            if await world.client.create({"filler": world.rng.randbytes(60_000).hex()}) is None:
                refused += 1
                if refused == 3:
                    break
        assert refused == 3, "the disk was not full"
        filler.unlink()
        if world.postgres.process is None or world.postgres.process.poll() is not None:
            # It ends itself when it cannot write its log; starting it again is its own service manager's work.
            world.postgres.process = None
            world.postgres.start()
        await world.until(lambda: world.client.create({}), "creates work again", 30)
    await world.is_alive()
