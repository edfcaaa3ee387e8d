"""Benchmarks: each compares inside one run, because machines are shared and noisy."""
