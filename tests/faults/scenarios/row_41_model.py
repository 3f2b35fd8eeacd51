import asyncio
import os
import sys

from tests.faults.processes import ROOT
from tests.faults.scenario import scenario
from tests.faults.world import World


@scenario(41, drain=False)
async def model(world: World) -> None:
    """The statements in any order against an oracle (tests/store/test_model.py), 2,000 histories."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/store/test_model.py",
        f"--hypothesis-seed={world.seed}",
        cwd=ROOT,
        env={**os.environ, "MODEL_EXAMPLES": str(world.scaled(2_000, 50))},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()[-3000:]
