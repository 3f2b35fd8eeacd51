import os
import shutil
import subprocess

from tests.faults.scenario import scenario
from tests.faults.world import POLL_SECONDS, Cannot, World


@scenario(24)
async def pgbouncer(world: World) -> None:
    """Through PgBouncer in transaction mode: all works; without a direct connection the log says that it only polls."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        raise Cannot("pgbouncer is missing: apt-get install pgbouncer")
    port, backend = (
        world.free_port(),
        await world.proxy(),
    )  # which listens on TCP; the server itself on a private socket
    (world.folder / "users.txt").write_text('"postgres" ""\n')
    (world.folder / "pgbouncer.ini").write_text(
        f"[databases]\njobqueue = host=127.0.0.1 port={backend.port} user=postgres\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        f"auth_file = {world.folder}/users.txt\npool_mode = transaction\ndefault_pool_size = 5\n"
        "ignore_startup_parameters = extra_float_digits,options\n"
    )
    for file in ("users.txt", "pgbouncer.ini"):
        (world.folder / file).chmod(0o644)
    as_user = ["-u", "nobody"] if os.geteuid() == 0 else []
    with (world.folder / "pgbouncer.log").open("wb") as output:
        command = [program, *as_user, str(world.folder / "pgbouncer.ini")]
        pooler = subprocess.Popen(command, stdout=output, stderr=output)
    world.at_end(pooler.kill)
    pooled = f"postgresql://postgres@127.0.0.1:{port}/jobqueue"
    await world.api(database_url=pooled, database_direct_url=world.database_url)
    [worker] = await world.workers(1, database_url=pooled, database_direct_url=world.database_url)
    await world.submit(world.scaled(200, 50))
    await world.drained()
    world.kill(worker)
    # Nobody said that a pooler stands in between, so statements are prepared; where it cannot track them, that fails.
    polling = world.start_worker(database_url=pooled)
    await world.until(lambda: "LISTEN hears nothing" in polling.text(), "the log says that it only polls")
    await world.starts_within(POLL_SECONDS + 1)
