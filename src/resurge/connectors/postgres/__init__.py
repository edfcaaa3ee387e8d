"""PostgreSQL: a sink that writes an epoch by binary COPY in one transaction, and lookups."""
