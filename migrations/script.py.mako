"""${message}

What and why: 
Step: expand | contract
Locks and duration: 
"""

from jobqueue.store.migrate import run_sql_beside

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_beside(__file__)
