"""Makes the helpers that stand beside this file importable from every test."""
