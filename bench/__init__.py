"""Benchmarks: the speed and cost of syphon, compared with the tools that people use today."""
