"""A web page over a job's telemetry and durable store: a pure model, a thin page, and a read-only server."""
