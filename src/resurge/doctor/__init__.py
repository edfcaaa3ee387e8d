"""Is everything there that a job needs? Each check says what it found and, if that will not do, what to do."""
