"""A request comes in. See README.md in this folder."""

from jobqueue.server.asgi import create_api

__all__ = ["create_api"]
