"""What a user calls: describe a topology, run it, and hold a job that runs."""
