"""What ended in each minute, for charts, and the group of an error.

What and why: see the comments in 0003_minutes.sql.
Step: expand.
Locks and duration: ACCESS EXCLUSIVE on job_counts for a moment; jobs is not touched.
"""

from jobqueue.store.migrate import run_sql_beside

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_beside(__file__)
