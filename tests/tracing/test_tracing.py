"""Traces arrive at a real OTLP receiver, and the user's payload stays the user's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from jobqueue import tracing
from jobqueue.ids import new_id
from jobqueue.job import NewJob
from jobqueue.settings import Settings
from jobqueue.store import jobs
from jobqueue.store.db import Connection
from tests.jobs import add, claim, read

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Receiver(HTTPServer):
    """Keeps the spans that are posted to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[Span] = []
        self.services: set[str] = set()


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.server.services |= {
                attribute.value.string_value
                for attribute in resource.resource.attributes
                if attribute.key == "service.name"
            }
            for scope in resource.scope_spans:
                self.server.spans.extend(scope.spans)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
    tracing.configure_tracing(Settings())


async def test_an_attempt_is_linked_to_the_request_that_created_the_job(
    receiver: Receiver, connection: Connection
) -> None:
    tracing.configure_tracing(Settings(otel_endpoint=f"http://127.0.0.1:{receiver.server_port}"))
    with tracing.create_span(TRACEPARENT, "email_send") as trace_context:
        new = NewJob(id=new_id(), type="email_send", payload=b'{"to": 1}', trace_context=trace_context)
        (outcome,) = await jobs.create_jobs(connection, [new])
    (taken,) = await claim(connection)
    tracing.end_attempt_span(tracing.start_attempt_span(taken), "boom")

    tracing.flush_tracing()

    spans = {span.name: span for span in receiver.spans}
    create, execute = spans["job.create"], spans["job.execute"]
    assert create.trace_id.hex() == TRACEPARENT[3:35]
    assert create.parent_span_id.hex() == TRACEPARENT[36:52]
    assert [link.span_id for link in execute.links] == [create.span_id]
    assert execute.trace_id != create.trace_id
    assert execute.status.message == "boom"
    assert receiver.services == {"job-queue"}
    assert bytes((await read(connection, outcome.job)).payload) == b'{"to": 1}'


async def test_without_an_endpoint_the_callers_trace_is_kept_and_nothing_else_happens(connection: Connection) -> None:
    with tracing.create_span(TRACEPARENT, "email_send") as trace_context:
        await add(connection, trace_context=trace_context)

    (taken,) = await claim(connection)

    assert taken.trace_context == TRACEPARENT
    assert tracing.start_attempt_span(taken) is None
