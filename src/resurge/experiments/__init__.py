"""Experiments on the 15-query hashtag topology: the demo, chaos, and the papers' studies."""
