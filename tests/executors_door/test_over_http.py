"""A type that is registered while the API runs, seen from outside."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from msgspec import Meta, Struct

from jobqueue import EXECUTOR_REGISTRY, BaseExecutor
from jobqueue.settings import Settings
from tests.server.conftest import started

pytestmark = pytest.mark.usefixtures("registry")


class Line(Struct):
    qty: Annotated[int, Meta(ge=1)]


class Order(Struct):
    items: list[Line]


class Late(BaseExecutor):
    async def execute(self, job_id: str, payload: Order) -> dict[str, Any]:
        return {}


async def test_entry_in_the_registry_makes_the_type_valid_at_once(settings: Settings) -> None:
    async with started(settings) as client:
        before = await client.post("/api/v1/jobs", json={"type": "late", "payload": {"items": []}})
        EXECUTOR_REGISTRY["late"] = Late()
        after = await client.post("/api/v1/jobs", json={"type": "late", "payload": {"items": []}})
        listed = await client.get("/api/v1/jobs", params={"type": "late"})
        document = (await client.get("/openapi.json")).text

    assert (before.status_code, after.status_code) == (422, 201)
    assert listed.json()["total"] == 1
    assert '"late"' in document


async def test_payload_that_does_not_fit_is_422_naming_the_field(settings: Settings) -> None:
    EXECUTOR_REGISTRY["late"] = Late()
    async with started(settings) as client:
        answer = await client.post("/api/v1/jobs", json={"type": "late", "payload": {"items": [{"qty": 0}]}})

    assert answer.status_code == 422
    assert answer.json()["errors"] == [
        {"field": "payload.items[0].qty", "message": "payload.items[0].qty: Expected `int` >= 1"}
    ]
