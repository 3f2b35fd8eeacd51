"""The first schema: jobs, their logs, queues, job types and workers.

What and why: see the comments in 0001_jobs.sql.
Step: expand.
Locks and duration: creates objects only; milliseconds.
"""

from jobqueue.store.migrate import run_sql_beside

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_beside(__file__)
