"""Programs to be run by hand: ``python -m benchmarks.commands.NAME``; ``--help`` of each names its options."""
