"""``python -m jobqueue.worker``."""

from jobqueue.cli import main

if __name__ == "__main__":
    main(["worker"])
