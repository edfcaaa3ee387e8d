"""The built-in sinks, in one place."""

from resurge.connectors.callback_sink import CallbackSink
from resurge.connectors.discard_sink import DiscardSink
from resurge.connectors.memory_sink import MemorySink
from resurge.connectors.parquet_sink import ParquetSink

__all__ = ["CallbackSink", "DiscardSink", "MemorySink", "ParquetSink"]
