from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(15)
async def answers_lost(world: World) -> None:
    """The answer to a commit is lost, of a create, a claim and an end: one job each, done once, no failure."""
    proxy = await world.proxy()
    await world.api(database_url=proxy.url)
    for _ in range(world.scaled(20, 2)):
        for name in ("create_jobs", "claim_jobs", "finish_jobs"):
            [worker] = await world.workers(1, database_url=proxy.url)
            # Only a session that has not run the statement before is recognised, so each starts anew.
            await proxy.cut()
            await proxy.open()
            with world.outage():
                proxy.drop_answer_to(name)
                job_id = await world.client.create({})  # without a key: by its id alone it is known again
                await world.until(proxy.dropped.is_set, f"the answer to {name} is lost")
            await world.drained()
            worker.kill()
            if job_id is None:  # the connection before had been cut as well, so two answers were lost: 503 is right
                [*_, answer] = (each for each in world.client.answers if each.route == "create")
                assert answer.status == 503, f"a create was answered {answer.status}"
                continue
            assert await world.status_of(job_id) == "completed"
            assert len(world.runs(job_id)) == 1
