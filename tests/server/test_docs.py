"""The API's description is complete, true, and works with no internet."""

from __future__ import annotations

import re
from typing import Any

import httpx
import msgspec
import psycopg
from litestar.handlers import HTTPRouteHandler

from jobqueue.executors import BaseExecutor
from jobqueue.server.dashboard.routes import HANDLERS

HIDDEN = {"/docs", "/docs/{name}", "/openapi.json"}


async def document(api: httpx.AsyncClient) -> Any:
    answer = await api.get("/openapi.json")
    assert answer.status_code == 200
    return answer.json()


def resolve(root: Any, reference: str) -> Any:
    found = root
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return found


def references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [found for value in node.values() for found in references(value)]
    return [found for value in node for found in references(value)] if isinstance(node, list) else []


async def test_every_route_is_described_and_nothing_else(api: httpx.AsyncClient) -> None:
    described = {
        (path, method.upper()) for path, methods in (await document(api))["paths"].items() for method in methods
    }

    framework = api.app.framework  # type: ignore[attr-defined]
    existing = {
        (re.sub(r":\w+}", "}", route.path), method)
        for route in framework.routes
        for method in route.methods
        if method != "OPTIONS"
    }
    pages = {(handler_path(handler), method) for handler in HANDLERS for method in handler.http_methods}
    assert described == {(path, method) for path, method in existing if path not in HIDDEN} - pages


def handler_path(handler: HTTPRouteHandler) -> str:
    [path] = handler.paths
    return re.sub(r":\w+}", "}", path)


async def test_all_references_lead_somewhere(api: httpx.AsyncClient, registry: dict[str, object]) -> None:
    registry["typed one/2"] = Typed()

    root = await document(api)

    for reference in references(root):
        assert resolve(root, reference) is not None


async def test_every_error_is_described_with_its_body(api: httpx.AsyncClient) -> None:
    root = await document(api)
    for path, methods in root["paths"].items():
        for operation in methods.values():
            for status, given in operation["responses"].items():
                answer = resolve(root, given["$ref"]) if "$ref" in given else given
                if int(status) >= 400 and path != "/health/ready":
                    assert list(answer["content"]) == ["application/problem+json"]
    create = root["paths"]["/api/v1/jobs"]["post"]["responses"]
    assert set(create) == {"200", "201", "400", "408", "413", "415", "422", "429", "500", "503"}


async def test_a_job_has_exactly_the_described_fields(api: httpx.AsyncClient) -> None:
    schemas = (await document(api))["components"]["schemas"]
    created = (await api.post("/api/v1/jobs", json={"type": "email_send"})).json()
    read = (await api.get(f"/api/v1/jobs/{created['id']}")).json()
    figures = (await api.get("/api/v1/metrics")).json()
    refused = (await api.post("/api/v1/jobs", json={})).json()

    assert list(schemas["Job"]["properties"]) == list(created)
    assert list(schemas["JobWithLogs"]["properties"]) == list(read)
    assert list(schemas["Figures"]["properties"]) == list(figures)
    assert list(schemas["Problem"]["properties"]) == list(refused)


class Attachment(msgspec.Struct):
    name: str


class Mail(msgspec.Struct):
    to: str
    attachments: list[Attachment] = []


class Typed(BaseExecutor):
    payload_type = Mail

    async def execute(self, job_id: str, payload: Mail) -> dict[str, Any]:
        return {}


async def test_a_new_type_s_payload_is_described_at_once(
    api: httpx.AsyncClient, registry: dict[str, object], sql: psycopg.Connection
) -> None:
    registry["mail"] = Typed()
    sql.execute(
        "INSERT INTO job_types (name, payload_schema) VALUES"
        """ ('far', '{"type": "object", "properties": {"x": {"type": "integer"}}}'), ('rubbish', '[1]')"""
    )

    root = await document(api)

    schemas = root["components"]["schemas"]
    assert {"mail", "far", "rubbish", "email_send"} <= set(schemas["JobCreate"]["properties"]["type"]["enum"])
    assert "Payload.rubbish" not in schemas
    assert schemas["Payload.far"]["properties"]["x"] == {"type": "integer"}
    reference = schemas["Payload.mail"]["$ref"]
    assert list(resolve(root, reference)["properties"]) == ["to", "attachments"]
    assert "`Payload.mail`" in root["paths"]["/api/v1/jobs"]["post"]["description"]


async def test_the_page_needs_no_other_host_and_no_inline_script(api: httpx.AsyncClient) -> None:
    page = await api.get("/docs")

    assert page.status_code == 200
    assert "script-src 'self';" in page.headers["content-security-policy"]
    assert not re.search(r"https?://", page.text)
    assert not re.search(r"<script(?![^>]*src=)", page.text)
    for path in re.findall(r'(?:src|href)="(/[^"]+)"', page.text):
        assert (await api.get(path)).status_code == 200
