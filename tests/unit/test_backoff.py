"""backoff: the delay grows, is capped, and never overflows (failures.md H1 to H4)."""

from __future__ import annotations

import random

import pytest

from jobqueue.backoff import MAX_DELAY_SECONDS, recovery_delay_seconds, retry_delay_seconds


@pytest.mark.parametrize(
    ("attempt", "shortest", "longest"),
    [
        (1, 1, 3),
        (2, 2, 6),
        (3, 4, 12),
        (4, 8, 24),
        (5, 16, 48),
        (9, 256, 768),
        (10, 512, 1536),
        (11, 1024, 3072),
        (12, 1800, 3600),
        (13, 1800, 3600),
    ],
)
def test_delay_doubles_with_each_attempt_within_its_jitter(attempt: int, shortest: float, longest: float) -> None:
    assert retry_delay_seconds(attempt, 0.5) == shortest
    assert retry_delay_seconds(attempt, 1.5) == longest


@pytest.mark.parametrize("attempt", [14, 64, 310, 1024, 1_000_000])
def test_a_huge_attempt_number_neither_overflows_nor_passes_the_cap(attempt: int) -> None:
    assert retry_delay_seconds(attempt, 1.5) == MAX_DELAY_SECONDS


def test_every_delay_is_positive_and_at_most_an_hour() -> None:
    dice = random.Random(7)
    delays = [retry_delay_seconds(dice.randint(-3, 2000), dice.uniform(0.5, 1.5)) for _ in range(10_000)]

    assert min(delays) >= 1
    assert max(delays) <= MAX_DELAY_SECONDS


@pytest.mark.parametrize("attempt", range(1, 11))
def test_a_lost_job_waits_less_than_two_seconds_past_its_recovery(attempt: int) -> None:
    for interval in (0.1, 0.5, 5.0):
        assert 0 < recovery_delay_seconds(attempt, 1.5, interval) <= interval + 1


def test_a_lost_first_attempt_waits_as_after_a_failure_where_that_is_shorter() -> None:
    assert recovery_delay_seconds(1, 1.5, 5.0) == retry_delay_seconds(1, 1.5)
