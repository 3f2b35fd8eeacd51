"""The delay before the next attempt. Pure: the randomness comes in as an argument."""

from __future__ import annotations

MAX_DELAY_SECONDS = 3600.0
_LARGEST_EXPONENT = 12  # 2**12 s is already past the cap; a larger exponent could only overflow


def retry_delay_seconds(attempt: int, jitter: float) -> float:
    """Return the seconds to wait after failed attempt *attempt* (1, 2, …).

    The contract's ``min(2^n, 3600) × uniform(0.5, 1.5)``, never more than 3600. *jitter* is a number in
    [0.5, 1.5].
    """
    base = min(2.0 ** min(max(attempt, 1), _LARGEST_EXPONENT), MAX_DELAY_SECONDS)
    return min(base * jitter, MAX_DELAY_SECONDS)


def recovery_delay_seconds(attempt: int, jitter: float, recovery_interval_seconds: float) -> float:
    """Return the seconds that a job whose worker was lost during *attempt* waits, from the end of its lease.

    As after a failure, but so short that the job starts again within lease + recovery interval + 2 s whatever the
    attempt: its worker failed, not the job. The attempts still bound a job that kills its workers.
    """
    return min(retry_delay_seconds(attempt, jitter), recovery_interval_seconds + 1.0)
