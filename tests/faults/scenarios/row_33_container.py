from tests.faults.scenario import scenario
from tests.faults.world import Cannot, World


@scenario(33)
async def container(world: World) -> None:
    """Deploys of containers under load."""
    raise Cannot("needs a container engine; deploy/check-containers.sh builds, runs and stops the image without one")
