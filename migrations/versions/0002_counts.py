"""Counts that do not depend on the size of the table, and the indexes of lists and of delayed jobs.

What and why: see the comments in 0002_counts.sql.
Step: expand.
Locks and duration: SHARE ROW EXCLUSIVE on jobs (readers go on, writers wait) while it reads the table once for the
counts and builds the indexes: about 3 s per million jobs.
"""

from jobqueue.store.migrate import run_sql_beside

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_beside(__file__)
