"""Connections to PostgreSQL that are made again when the server was away, and errors that never show a password."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from resurge.connectors.extras import check_extra, client_library
from resurge.errors import ResurgeError

Made = TypeVar("Made")
RETRY_PAUSE_S = 0.2


@dataclass(frozen=True)
class Database:
    """Where a database is (a DSN or URL, which may hold a password) and how long to wait for it."""

    dsn: str = field(repr=False)
    retry_timeout_s: float = 120.0

    @staticmethod
    def of(dsn: str, retry_timeout_s: float, user: str) -> "Database":
        """A database as a user names it."""
        check_extra("psycopg", "postgres", user)
        return Database(dsn, retry_timeout_s)

    def __str__(self) -> str:
        parts = client_library("psycopg.conninfo", "postgres", "PostgreSQL").conninfo_to_dict(self.dsn)
        return f"PostgreSQL at {parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"

    def connect(self) -> Any:
        """A new connection without automatic commits."""
        library = client_library("psycopg", "postgres", "PostgreSQL")
        # Keep-alive and a limit on unacknowledged data: a server that vanished is noticed.
        return library.connect(self.dsn, connect_timeout=10, keepalives_idle=10, tcp_user_timeout=30_000)


class Connection:
    """One connection, opened when it is first needed and after every loss."""

    def __init__(self, database: Database, failure: type[ResurgeError]) -> None:
        self.database = database
        self.failure = failure
        self._open: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": None}

    def transaction(self, action: str, work: Callable[[Any], Made]) -> Made:
        """Run some work in one transaction; after a lost connection the whole of it again, until the time for retries is over."""
        library = client_library("psycopg", "postgres", "PostgreSQL")
        deadline = time.monotonic() + self.database.retry_timeout_s
        while True:
            try:
                if self._open is None:
                    self._open = self.database.connect()
                with self._open.transaction(), self._open.cursor() as cursor:
                    return work(cursor)
            except ResurgeError:
                raise
            except (library.OperationalError, library.InterfaceError, OSError) as error:
                self.close()
                if time.monotonic() > deadline:
                    raise self._failed(action, error) from error
            except library.Error as error:
                raise self._failed(action, error) from error
            time.sleep(RETRY_PAUSE_S)

    def close(self) -> None:
        """Let go of the connection."""
        if self._open is not None:
            self._open.close()
        self._open = None

    def _failed(self, action: str, error: Exception) -> ResurgeError:
        said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return self.failure(
            f"{self.database} could not {action}: {said}; fix the cause and run the same command again; no data was lost"
        )
