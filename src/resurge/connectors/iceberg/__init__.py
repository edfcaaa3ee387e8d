"""Apache Iceberg: a sink that adds staged files and the note of what was published in one commit of the catalog."""
