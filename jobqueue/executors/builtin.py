"""The three built-in job types. They simulate work; every payload key is optional."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any, ClassVar

from jobqueue.executors.registry import BaseExecutor, executor
from jobqueue.settings import Settings


class Simulation:
    """How the built-in types behave in this process: whether they fail, how long they take, which dice they use."""

    failures: bool = True
    delay_scale: float = 1.0
    dice: random.Random = random.Random()  # noqa: S311  simulated work, nothing secret

    @classmethod
    def configure(cls, settings: Settings) -> None:
        """Take the SIMULATE_ settings."""
        cls.failures = settings.simulate_failures
        cls.delay_scale = settings.simulate_delay_scale
        cls.dice = random.Random(settings.simulate_seed or None)  # noqa: S311  as above

    @classmethod
    def seconds(cls, shortest: float, longest: float) -> float:
        """Return how long a piece of work takes."""
        return cls.dice.uniform(shortest, longest) * cls.delay_scale

    @classmethod
    def fails(cls, rate: float) -> bool:
        """Tell whether this attempt fails."""
        return cls.failures and cls.dice.random() < rate

    @classmethod
    def hexadecimal(cls, digits: int) -> str:
        """Return that many hexadecimal digits."""
        return f"{cls.dice.getrandbits(digits * 4):0{digits}x}"


class SmtpError(Exception):
    """The simulated mail server refused."""


class GatewayError(Exception):
    """The simulated payment gateway did not answer."""


@executor("email_send")
class EmailSend(BaseExecutor):
    """Simulates sending an e-mail over SMTP. One attempt in ten fails."""

    max_execution_seconds: ClassVar[float | None] = 30

    async def execute(self, job_id: str, payload: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(Simulation.seconds(0.5, 3.0))
        if Simulation.fails(0.1):
            raise SmtpError("SMTP server refused the connection")
        return {
            "message_id": f"msg_{Simulation.hexadecimal(8)}",
            "delivered": True,
            "recipient": payload.get("to"),
        }


@executor("payment_retry")
class PaymentRetry(BaseExecutor):
    """Simulates charging through a payment gateway. Three attempts in ten fail."""

    max_execution_seconds: ClassVar[float | None] = 60

    async def execute(self, job_id: str, payload: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(Simulation.seconds(1.0, 5.0))
        if Simulation.fails(0.3):
            raise GatewayError("504: payment gateway unavailable")
        return {
            "transaction_id": f"txn_{Simulation.hexadecimal(12)}",
            "status": "approved",
            "amount": payload.get("amount"),
        }


@executor("report_generate")
class ReportGenerate(BaseExecutor):
    """Simulates building a report. Runs in a thread, off the event loop; never fails."""

    max_execution_seconds: ClassVar[float | None] = 120

    def execute(self, job_id: str, payload: dict[str, Any]) -> dict[str, Any]:
        time.sleep(Simulation.seconds(1.0, 5.0))
        return {
            "rows": Simulation.dice.randint(100, 10_000),
            "format": payload.get("format"),
            "size_bytes": Simulation.dice.randint(50_000, 500_000),
            "report_id": f"rpt_{Simulation.dice.randint(10_000, 99_999)}",
        }
