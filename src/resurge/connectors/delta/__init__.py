"""Delta Lake: a sink that commits staged files with an application transaction."""
