"""Kafka: a source whose offsets are the journal's, and a sink that writes an epoch in one transaction."""
