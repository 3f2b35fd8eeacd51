"""Requests made from the OpenAPI document, alone and one after the other: nothing that it does not tell of.

SCHEMATHESIS_EXAMPLES is the number of requests per route (30 by default; 2,000 make some 10,000 altogether).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.stateful import run_state_machine_as_test

from jobqueue.settings import Settings
from tests.server.conftest import served

EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "30"))
HURRY = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize="SCHEMATHESIS_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def schema(settings: Settings, registry: object) -> Iterator[Any]:
    with served(settings) as url:
        yield schemathesis.openapi.from_url(f"{url}/openapi.json")


@pytest.mark.timeout(60 + EXAMPLES)
def test_every_answer_is_one_that_the_document_tells_of(schema: Any) -> None:
    for result in schema.get_all_operations():
        operation = result.ok()

        @HURRY
        @given(case=operation.as_strategy())
        def send(case: Any) -> None:
            case.call_and_validate()

        send()


@pytest.mark.timeout(60 + EXAMPLES)
def test_answers_one_after_the_other_agree(schema: Any, sql: psycopg.Connection) -> None:
    class Workflow(schema.as_state_machine()):  # type: ignore[misc]  made from the document
        def setup(self) -> None:
            sql.execute("TRUNCATE jobs, job_logs")  # or the same key would be answered otherwise the second time

    run_state_machine_as_test(Workflow, settings=settings(HURRY, stateful_step_count=8))
