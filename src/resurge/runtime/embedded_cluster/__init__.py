"""The embedded cluster: a real Spark master and real workers on this machine, with nodes to kill, cut off and add."""
