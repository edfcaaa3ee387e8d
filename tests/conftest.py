"""Makes the package of helpers beside this file, tests.support, importable from every test."""
