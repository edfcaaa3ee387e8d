"""How source and sink reach a Kafka cluster: settings, retries, and errors that say which cluster was asked."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from resurge.connectors.extras import check_extra, client_library
from resurge.errors import ResurgeError

Made = TypeVar("Made")
REQUEST_TIMEOUT_S = 10.0
RETRY_PAUSE_S = 0.2
# What a broker or a connection says while it restarts; everything else that may be tried again says so itself.
_PASSING_ERRORS = (
    "_TRANSPORT",
    "_ALL_BROKERS_DOWN",
    "_TIMED_OUT",
    "_RESOLVE",
    "REQUEST_TIMED_OUT",
    "BROKER_NOT_AVAILABLE",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "NETWORK_EXCEPTION",
    "CONCURRENT_TRANSACTIONS",
    "UNKNOWN_LEADER_EPOCH",
    "FENCED_LEADER_EPOCH",
    "REPLICA_NOT_AVAILABLE",
    "KAFKA_STORAGE_ERROR",
)


@dataclass(frozen=True)
class KafkaCluster:
    """Where the brokers are, further client settings (which may hold secrets), and how long to wait for a broker."""

    servers: str
    settings: tuple[tuple[str, Any], ...] = field(default=(), repr=False)
    retry_timeout_s: float = 120.0

    @staticmethod
    def of(servers: str, settings: Mapping[str, Any] | None, retry_timeout_s: float, user: str) -> "KafkaCluster":
        """A cluster as a user describes it."""
        check_extra("confluent_kafka", "kafka", user)
        return KafkaCluster(servers, tuple(sorted((settings or {}).items())), retry_timeout_s)

    @property
    def request_timeout_s(self) -> float:
        """How long to wait for one answer."""
        return min(REQUEST_TIMEOUT_S, self.retry_timeout_s)

    def client(self, kind: str, **settings: Any) -> Any:
        """A `Consumer`, `Producer` or `AdminClient`; the user's settings win over the usual ones, not over ours."""
        module = "confluent_kafka.admin" if kind == "AdminClient" else "confluent_kafka"
        library = client_library(module, "kafka", "Kafka")
        # Without a logger of our own, the client prints every lost connection on the user's terminal.
        return getattr(library, kind)(
            {
                "bootstrap.servers": self.servers,
                "log_level": 0,
                "reconnect.backoff.max.ms": 500,
                **dict(self.settings),
                **settings,
            },
            logger=_QUIET,
        )


class _Quiet:
    def log(self, *_: Any, **__: Any) -> None:
        """Say nothing: errors reach the caller as exceptions."""

    isEnabledFor = log


_QUIET = _Quiet()


def is_passing(error: Any) -> bool:
    """Whether an error is one that passes when the broker is back."""
    library = client_library("confluent_kafka", "kafka", "Kafka")
    code = error.args[0] if isinstance(error, library.KafkaException) else error
    if not isinstance(code, library.KafkaError):
        return False
    return bool(code.retriable()) or code.code() in {getattr(library.KafkaError, name) for name in _PASSING_ERRORS}


def patiently(
    cluster: KafkaCluster,
    action: str,
    failure: type[ResurgeError],
    attempt: Callable[[], Made],
    now: Callable[[], float] | None = None,
) -> Made:
    """Try until it works, the error is not one that passes, or the time for retries is over."""
    clock = now or time.monotonic
    deadline = clock() + cluster.retry_timeout_s
    while True:
        try:
            return attempt()
        except Exception as error:
            if isinstance(error, ResurgeError):
                raise
            if not is_passing(error) or clock() > deadline:
                raise failure(
                    f"Kafka at {cluster.servers} could not {action}: {_text(error)}; nothing was lost: "
                    "when the broker is back, run the same command again"
                ) from error
        time.sleep(RETRY_PAUSE_S)


def _text(error: Exception) -> str:
    code = error.args[0] if error.args else error
    return code.str() if hasattr(code, "str") else str(code)
