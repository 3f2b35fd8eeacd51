"""The names of all metrics, and how logs are written. Spans are in ``tracing``."""

from __future__ import annotations

import logging
import sys

import structlog
from prometheus_client import Counter, Gauge, Histogram

from jobqueue.histogram import JobHistogram

JOBS_CREATED = Counter("jobqueue_jobs_created_total", "Jobs accepted.", ["type", "priority"])
JOBS_COMPLETED = Counter("jobqueue_jobs_completed_total", "Jobs completed.", ["type"])
JOBS_FAILED = Counter("jobqueue_jobs_failed_total", "Jobs failed for good.", ["type"])
JOBS_RETRIED = Counter("jobqueue_jobs_retried_total", "Failed attempts that will be tried again.", ["type"])
JOBS_CANCELLED = Counter("jobqueue_jobs_cancelled_total", "Jobs cancelled through this process.", [])
IDEMPOTENCY_HITS = Counter("jobqueue_idempotency_hits_total", "Creates answered with an existing job.", [])
RATE_LIMIT_HITS = Counter("jobqueue_rate_limit_hits_total", "Creates refused by the rate limit.", [])
ENQUEUE = Counter("jobqueue_enqueue_total", "Insert statements (batches of creates).", [])
DEQUEUE = Counter("jobqueue_dequeue_total", "Jobs claimed.", [])
RETRY_DRAIN = Counter("jobqueue_retry_drain_total", "Claimed jobs that had waited for a retry.", [])
WORKER_LOOPS = Counter("jobqueue_worker_loop_iterations_total", "Turns of the claim loop.", [])
WORKER_IDLE_SECONDS = Counter("jobqueue_worker_idle_seconds_total", "Time the claim loop slept.", [])
RECOVERY_ACTIONS = Counter("jobqueue_worker_recovery_actions_total", "Lost jobs recovered.", ["outcome"])
WORKER_RESTARTS = Counter("jobqueue_worker_restarts_total", "Starts of a worker process.", [])
DB_ERRORS = Counter("jobqueue_db_errors_total", "Failed calls to PostgreSQL.", ["error"])
REDIS_ERRORS = Counter("jobqueue_redis_errors_total", "Failed calls to Redis.", [])
LEASES_LOST = Counter("jobqueue_lease_lost_total", "Attempts that no longer owned their job.", ["reason"])

JOB_WAIT_SECONDS = JobHistogram("jobqueue_job_wait_duration_seconds", "From due to claimed.", "priority")
JOB_PROCESSING_SECONDS = JobHistogram(
    "jobqueue_job_processing_duration_seconds",
    "From claimed to finished.",
    "type",
    buckets=(0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300),
)
EXECUTOR_SECONDS = JobHistogram("jobqueue_worker_executor_duration_seconds", "Run time of executors.", "type")
BACKOFF_SECONDS = Histogram(
    "jobqueue_retry_backoff_seconds",
    "Delays before retries.",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 3600),
)
DB_QUERY_SECONDS = Histogram("jobqueue_db_query_duration_seconds", "Time per statement.", ["query"])
REDIS_COMMAND_SECONDS = Histogram("jobqueue_redis_command_duration_seconds", "Time per Redis command.", ["command"])

JOBS_ACTIVE = Gauge("jobqueue_jobs_active", "Jobs this worker holds.")
QUEUE_DEPTH = Gauge("jobqueue_queue_depth", "Waiting jobs by what they wait for.", ["queue"])
DB_POOL_SIZE = Gauge("jobqueue_db_pool_size", "Open reading connections.")
REDIS_POOL_CONNECTIONS = Gauge("jobqueue_redis_pool_connections", "Open Redis connections.")
THREADS_LEFT_BEHIND = Gauge(
    "jobqueue_worker_stuck_executors", "Executors that ignore their time limit or cancellation."
)


def configure_logging(level: str) -> None:
    """Write logs to stderr, one JSON object a line, at *level* and above.

    On a terminal they are written for people instead. Records of the standard ``logging`` go the same way.
    """
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # They tell at INFO what we log ourselves.
    for chatty in ("uvicorn.access", "uvicorn.error", "alembic", "psycopg.pool", "httpx"):
        logging.getLogger(chatty).setLevel("WARNING")
