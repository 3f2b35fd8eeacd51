"""Alembic's entry. The URL comes from the settings, or from the caller in ``config.attributes``."""

from alembic import context

from jobqueue.store.migrate import migration_engine, take_turn

config = context.config


def run_online() -> None:
    """Run on a connection, alone: everybody else waits for the advisory lock."""
    url = config.attributes.get("database_url")
    if url is None:
        from jobqueue.settings import load_settings

        url = load_settings().database_url
    with migration_engine(url).connect() as connection:
        take_turn(connection)
        context.configure(connection=connection, transaction_per_migration=True)
        with context.begin_transaction():
            context.run_migrations()


def run_offline() -> None:
    """Print the SQL instead (``alembic upgrade head --sql``)."""
    context.configure(dialect_name="postgresql", literal_binds=True, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    run_offline()
else:
    run_online()
