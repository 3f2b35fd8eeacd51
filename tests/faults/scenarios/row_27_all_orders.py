import itertools
from contextlib import suppress

from jobqueue.errors import Conflict
from jobqueue.settings import Settings
from jobqueue.store import jobs, workers
from jobqueue.store.db import connect
from tests.faults.scenario import scenario
from tests.faults.world import World
from tests.jobs import claim, outcome


@scenario(27, short=True)
async def all_orders(world: World) -> None:
    """Cancel, recovery and the end of one attempt, in all six orders: the first wins, the others change nothing."""
    settings = Settings(database_url=world.database_url)
    connections = [await connect(world.database_url, settings, f"order-{n}") for n in range(3)]
    cancelling, recovering, finishing = connections
    for kind in ("completed", "failed"):
        for order in itertools.permutations(("cancel", "recover", "finish")):
            for _ in range(world.scaled(50, 3)):
                world.sql("INSERT INTO jobs (type, max_attempts) VALUES ('email_send', 3)")
                [claimed] = await claim(finishing)
                world.sql(
                    "UPDATE jobs SET lease_expires_at = now() - interval '1 min',"
                    " started_at = now() - interval '2 min' WHERE id = %s",
                    str(claimed.id),
                )
                lost = [
                    job
                    for job in await workers.list_lost_jobs(recovering, lease_seconds=0, stuck_seconds=600, max_jobs=10)
                    if job.id == claimed.id
                ]
                assert lost, "the lease has run out"
                states = []
                for step in order:
                    if step == "cancel":
                        with suppress(Conflict):
                            await jobs.cancel_job(cancelling, claimed.id, actor="order")
                    elif step == "recover":
                        await workers.recover_jobs(recovering, lost, [60.0], stuck_seconds=600)
                    else:
                        await jobs.finish_jobs(finishing, [outcome(claimed, kind)])
                    states.append(await world.status_of(str(claimed.id)))
                assert states[-1] == expected(order, kind), f"{order} with {kind} went {states}"
                world.sql("DELETE FROM jobs; DELETE FROM audit.history")
    for connection in connections:
        await connection.close()


def expected(order: tuple[str, ...], kind: str) -> str:
    """Return where the job ends: cancelling wins over everything that does not end the job before it."""
    before_cancel = order[: order.index("cancel")]
    has_ended = bool(before_cancel) and before_cancel[0] == "finish" and kind == "completed"
    return "completed" if has_ended else "cancelled"
