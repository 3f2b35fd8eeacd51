"""OpenTelemetry traces across the create and the run of a job. Off, and free of cost, unless OTEL_ENDPOINT is set.

The request that creates a job is a PRODUCER span; its W3C ``traceparent`` is kept in the job's own column. Each attempt
is a CONSUMER span of a new trace, linked to it: a job may run hours later, and several times.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jobqueue.errors import SetupError
from jobqueue.job import Claim
from jobqueue.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

_tracer: Tracer | None = None


def configure_tracing(settings: Settings) -> None:
    """Send spans to OTEL_ENDPOINT from now on, if it is set.

    Raises:
        SetupError: it is set, but the extra ``jobqueue[otel]`` is not installed.
    """
    global _tracer  # noqa: PLW0603  OpenTelemetry's own provider is one per process, too
    if not settings.otel_endpoint:
        _tracer = None
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise SetupError(
            "OTEL_ENDPOINT is set, but OpenTelemetry is not installed: pip install 'jobqueue[otel]'"
        ) from error
    endpoint = settings.otel_endpoint.rstrip("/")
    if not endpoint.endswith("/v1/traces"):
        endpoint += "/v1/traces"
    provider = TracerProvider(resource=Resource.create({"service.name": settings.otel_service_name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    _tracer = provider.get_tracer("jobqueue")


def flush_tracing() -> None:
    """Send what is still held back. Waits two seconds at most."""
    provider: Any = getattr(_tracer, "span_processor", None)
    if provider is not None:
        provider.force_flush(2000)


@contextmanager
def create_span(traceparent: str | None, job_type: str) -> Iterator[str | None]:
    """Wrap the creation of a job. Yields the ``traceparent`` to keep with it: the span's, else the caller's own."""
    if _tracer is None:
        yield traceparent
        return
    from opentelemetry.trace import SpanKind, set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    propagator = TraceContextTextMapPropagator()
    parent = propagator.extract({"traceparent": traceparent} if traceparent else {})
    with _tracer.start_as_current_span(
        "job.create", context=parent, kind=SpanKind.PRODUCER, attributes=_attributes(job_type)
    ) as span:
        carrier: dict[str, str] = {}
        propagator.inject(carrier, set_span_in_context(span))
        yield carrier.get("traceparent", traceparent)


def start_attempt_span(claim: Claim) -> Span | None:
    """Start the span of one attempt, linked to the creation. End it with :func:`end_attempt_span`."""
    if _tracer is None:
        return None
    from opentelemetry import context
    from opentelemetry.trace import Link, SpanKind, get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {"traceparent": claim.trace_context} if claim.trace_context else {}
    creator = get_current_span(TraceContextTextMapPropagator().extract(carrier)).get_span_context()
    attributes = {
        **_attributes(claim.type),
        "messaging.message.id": str(claim.id),
        "messaging.destination.name": claim.queue,
        "jobqueue.attempt": claim.attempt,
    }
    return _tracer.start_span(
        "job.execute",
        context=context.Context(),
        kind=SpanKind.CONSUMER,
        links=[Link(creator)] if creator.is_valid else [],
        attributes=attributes,
    )


def end_attempt_span(span: Span | None, error: str | None) -> None:
    """End an attempt's span; with *error* it counts as failed."""
    if span is None:
        return
    if error is not None:
        from opentelemetry.trace import Status, StatusCode

        span.set_status(Status(StatusCode.ERROR, error[:200]))
    span.end()


def _attributes(job_type: str) -> dict[str, str | int]:
    return {"messaging.system": "jobqueue", "jobqueue.type": job_type}
