"""The real servers; a test whose server cannot be had is skipped, with the reason."""

import secrets

import pytest

from tests.support import services


@pytest.fixture(scope="session")
def kafka_servers() -> str:
    """Where the Kafka broker is."""
    found = services.address("kafka")
    if not found:
        pytest.skip(services.why_missing("kafka"))
    return found


@pytest.fixture(scope="session")
def postgres() -> str:
    """How to connect to PostgreSQL."""
    if not services.address("postgres"):
        pytest.skip(services.why_missing("postgres"))
    return services.postgres_dsn()


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> str:
    """A name for a topic or table that no other test or earlier run has used."""
    return f"{services.safe_name(request.node.name)}_{secrets.token_hex(3)}"
