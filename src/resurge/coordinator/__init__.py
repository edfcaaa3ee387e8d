"""The coordinator: `handle(state, input, now_s)` decides what a driver does, on Spark and in the simulator alike. Pure."""
